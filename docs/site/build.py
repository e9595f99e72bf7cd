"""Build the documentation site: `python docs/site/build.py [DIRECTORY]`, by default build/site, without a network.

The pages are those of the tree, copied as they lie, so that their links hold; reference pages are made from the
commands, from a coordinator that is started for it, and from the errors. Any warning of Sphinx ends the build.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path

import msgspec
from sphinx.application import Sphinx
from typer.main import get_command

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.commands import configuration

sys.path.insert(0, str(Path(__file__).parent))
import rest_examples
from reference import commands_page, errors_page, rest_page

_ROOT = Path(__file__).parents[2]
_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def build(target: Path) -> int:
    """Return the number of pages. Raises SphinxError."""
    with tempfile.TemporaryDirectory() as name:
        source, doctrees = Path(name, "source"), Path(name, "doctrees")
        _gather(source)
        shutil.rmtree(target, ignore_errors=True)
        sphinx = Sphinx(
            str(source),
            str(source),
            str(target),
            str(doctrees),
            "html",
            status=None,
            warningiserror=True,
            freshenv=True,
        )
        sphinx.build(force_all=True)
        if sphinx.statuscode:
            raise SystemExit("the site has the faults above")
        return len(sphinx.env.found_docs)


def _gather(source: Path) -> None:
    """Lay out the pages, and make those of the reference."""
    shutil.copytree(_ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("site", "__pycache__"))
    for page in _PAGES:
        shutil.copy(_ROOT / page, source / page)
    for own in ("conf.py", "index.md"):
        shutil.copy(Path(__file__).with_name(own), source / own)
    reference = source / "reference"
    reference.mkdir()
    program = get_command(application)
    (reference / "commands.md").write_text(commands_page(program, configuration.apply(program, {})))
    (reference / "errors.md").write_text(errors_page())
    with tempfile.TemporaryDirectory() as name, LocalCluster(Path(name), datanodes=1, port=0) as cluster:
        described = _described(cluster.http_address)
        answers = rest_examples.run(cluster.http_address)
        rest = rest_page(described, answers, rest_examples.WITHOUT)
        (reference / "rest.md").write_text(rest.replace(cluster.http_address, "http://coordinator:9870"))


def _described(address: str) -> dict[str, object]:
    """Ask a coordinator for the description of its REST."""
    with urllib.request.urlopen(f"{address}/v1/openapi.json", timeout=60) as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, object])


if __name__ == "__main__":
    where = Path(sys.argv[1]) if sys.argv[1:] else _ROOT / "build" / "site"
    print(f"{build(where)} pages in {where}")
