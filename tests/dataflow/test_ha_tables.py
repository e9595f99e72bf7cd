"""`python -m benchmarks ha_table6` and similar commands: the table, its JSON file, and the picture."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import report, state_pictures
from benchmarks.papers import ha_results
from benchmarks.papers.ha_experiment import Setup
from benchmarks.papers.ha_pictures import drawn
from benchmarks.papers.ha_results import TableCell, TableRow


@pytest.fixture
def _one_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cells = [TableCell("filter", "upstream backup", Setup("filter"), 20.0, 0.64)]
    monkeypatch.setattr(ha_results, "RESULTS", {"ha_table6": lambda: cells})
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(state_pictures, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "ha_table6", "--runs", "1"])


@pytest.mark.usefixtures("_one_cell")
def test_a_table_marks_what_is_far_from_the_paper_and_is_written_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Let the paper's value be 20 ms, although K alone is 45 ms."""
    command.main()
    shown = capsys.readouterr().out
    assert "means over 1 run;" in shown
    assert re.search(r"filter +upstream backup +20\.00 +4\d\.\d\d\* +45\.60 +0\.64 +0\.\d\d +0\.64", shown)
    (row,) = json.loads((tmp_path / "ha_table6.json").read_text())["rows"]
    assert list(row) == [field.name for field in dataclasses.fields(TableRow)]
    assert (row["case"], row["approach"], row["runs"]) == ("filter", "upstream backup", 1)
    assert row["paper_recovery_ms"] == 20.0
    assert row["closed_recovery_ms"] == pytest.approx(45.6)


def test_a_benchmark_is_named_for_each_result() -> None:
    assert set(command._HA_RESULTS) == set(ha_results.RESULTS)


@pytest.mark.parametrize("name", command._ALL)
def test_a_benchmark_that_is_named_can_be_run(name: str) -> None:
    assert callable(command._module(name).main)


def row(case: str, approach: str, recovery_ms: float, bandwidth: float, paper: float | None) -> TableRow:
    return TableRow(case, approach, paper, recovery_ms, 0.0, 45.0, paper, bandwidth, bandwidth, 1.0, 1)


ROWS = [
    row("25 ms", "upstream backup", 50.0, 1.3, None),
    row("50 ms", "upstream backup", 60.0, 0.6, 58.0),
    row("25 ms", "passive standby", 46.0, 112.0, None),
]


@pytest.mark.parametrize(
    ("name", "panels", "x_label"),
    [("ha_figure6", 1, "bandwidth overhead, %"), ("ha_table6", 2, "")],
)
def test_picture_has_a_line_for_each_technique(name: str, panels: int, x_label: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    axes = drawn(ROWS, name).axes
    assert len(axes) == panels
    for axis in axes:
        named = [line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]
        assert [str(line.get_label()).split(",")[0] for line in named] == ["upstream backup", "passive standby"]
        assert axis.get_xlabel() == x_label
        # The picture shows the paper's only number as a cross.
        assert [len(points.get_offsets()) for points in axis.collections] == [1]
