"""Every decision page has a tracer, and every tracer runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGES = sorted((Path(__file__).parent.parent / "docs" / "decisions").glob("0*.md"))


def _marked(page: Path) -> object:
    marks = [pytest.mark.spark, pytest.mark.timeout(400)] if "SparkSession.builder" in page.read_text() else []
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [_marked(page) for page in _PAGES])
def test_the_tracer_of_a_decision_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tracer,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    # A script of the last name is forked from an interpreter that has imported it all (`support/fork_server.py`).
    begins_anew = "pyspark" in tracer or "sys.modules" in tracer
    script = tmp_path / ("tracer_begun_anew.py" if begins_anew else "tracer.py")
    script.write_text(tracer)
    if "local-cluster" in tracer:
        request.getfixturevalue("executors").run(script)
        return
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stderr


def test_the_index_names_every_page() -> None:
    index = (_PAGES[0].parent / "README.md").read_text()
    assert re.findall(r"\((0\d+-[a-z0-9-]+\.md)\)", index) == [page.name for page in _PAGES]
