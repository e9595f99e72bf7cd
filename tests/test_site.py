"""The documentation site is built without a network or warnings, and has every page and command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from peacefs.command import application
from peacefs.protocol.errors import BY_CODE

_ROOT = Path(__file__).parent.parent


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_site_has_every_page_command_route_and_error_and_fetches_nothing(tmp_path: Path) -> None:
    target = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "docs/site/build.py", str(target)], cwd=_ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path.relative_to(_ROOT).with_suffix(".html") for path in (_ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page.parts[1] != "site" and not (target / page).exists()] == []
    commands = (target / "reference" / "commands.html").read_text()
    assert [name for name in get_command(application).commands if f">peacefs {name}<" not in commands] == []  # type: ignore[attr-defined]
    errors = (target / "reference" / "errors.html").read_text()
    assert [code for code in BY_CODE if code not in errors] == []
    rest = (target / "reference" / "rest.html").read_text()
    # Each route has an example, recorded from a coordinator during the build, or says why it has none.
    routes = re.findall(r"<h2>((?:GET|PUT|POST|DELETE) /v1/[^<]*)<", rest)
    assert len(routes) > 50
    assert len(routes) == len(re.findall(r"http://coordinator:9870/v1/", rest)) + rest.count("No example: ")
    assert "GET /v1/chunks/{chunk}" in routes
    fetched = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="https?://')
    assert [page for page in target.rglob("*.html") if fetched.search(page.read_text())] == []
