"""Every decision page has a tracer in `tracers/`, and every tracer runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGES = sorted((Path(__file__).parent.parent / "docs" / "decisions").glob("0*.md"))


def _tracer(page: Path) -> str:
    return (page.parent / "tracers" / f"{page.name[:4]}.py").read_text()


def _marked(page: Path) -> object:
    marks = [pytest.mark.spark, pytest.mark.timeout(400)] if "SparkSession.builder" in _tracer(page) else []
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [_marked(page) for page in _PAGES])
def test_the_tracer_of_a_decision_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tracer = _tracer(page)
    # `tracer.py` is forked from an interpreter that has imported everything (`support/fork_server.py`). Tracers of
    # recovery play dataflows in virtual time, with code from `benchmarks/`.
    plays = "from benchmarks" in tracer
    begins_anew = "pyspark" in tracer or "sys.modules" in tracer or plays
    script = tmp_path / ("tracer_begun_anew.py" if begins_anew else "tracer.py")
    script.write_text(tracer)
    if "local-cluster" in tracer:
        request.getfixturevalue("executors").run(script)
        return
    surroundings = os.environ | ({"PYTHONPATH": str(Path(__file__).parent.parent)} if plays else {})
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=380, env=surroundings
    )
    assert done.returncode == 0, done.stderr


def test_the_index_names_every_page_by_its_title() -> None:
    index = (_PAGES[0].parent / "README.md").read_text()
    titles = [(page.read_text().splitlines()[0].partition(". ")[2], page.name) for page in _PAGES]
    assert re.findall(r"^- \[\d+\. (.+)\]\((0\d+-[a-z0-9-]+\.md)\)$", index, re.MULTILINE) == titles


def test_every_page_and_its_tracer_belong_together() -> None:
    tracers = {path.stem for path in (_PAGES[0].parent / "tracers").glob("*.py")}
    assert tracers == {page.name[:4] for page in _PAGES}
    for page in _PAGES:
        assert f"Tracer: [{page.name[:4]}.py](tracers/{page.name[:4]}.py)" in page.read_text(), page.name


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_a_decision_is_short_and_says_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= 500
    parts = re.findall(r"^(?:## |\*\*)(Context|Deci|Consequences)", text, re.MULTILINE)
    assert set(parts) == {"Context", "Deci", "Consequences"}
