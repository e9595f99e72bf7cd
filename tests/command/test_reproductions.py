"""`peacefs simulate ha-...`: what is shown, what scripts get, what a picture has, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.commands.reproduction_picture import draw, drawn
from peacefs.commands.simulate_command import REPRODUCTIONS
from peacefs.dataflow.reproductions import ha_results
from peacefs.dataflow.reproductions.ha_experiment import Measured, Setup
from peacefs.dataflow.reproductions.ha_results import RESULTS, TableCell, TableRow
from peacefs.protocol.errors import BadRequest


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["simulate", *arguments], prog_name="peacefs", env={"COLUMNS": "80"})


@pytest.fixture
def _one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [TableCell("filter", "upstream backup", Setup("filter"), 20.0, 0.64)]
    monkeypatch.setattr(ha_results, "RESULTS", {"ha-table6": lambda: cells})


def test_reproductions_of_the_command_are_those_that_there_are() -> None:
    assert tuple(RESULTS) == REPRODUCTIONS


@pytest.mark.usefixtures("_one_cell")
def test_reproduction_as_json_is_its_rows() -> None:
    shown = simulate("ha-table6", "--seeds", "1", "--json")
    assert shown.exit_code == 0, shown.stderr
    (row,) = json.loads(shown.stdout)
    assert list(row) == [field.name for field in dataclasses.fields(TableRow)]
    assert (row["case"], row["approach"], row["runs"]) == ("filter", "upstream backup", 1)
    assert row["paper_recovery_ms"] == 20.0
    assert row["closed_recovery_ms"] == pytest.approx(45.6)


@pytest.mark.usefixtures("_one_cell")
def test_reproduction_marks_what_is_far_from_the_paper() -> None:
    """The paper is made to say 20 ms, where K alone is 45."""
    shown = simulate("ha-table6", "--seeds", "1")
    assert "means over 1 run;" in shown.stdout
    assert re.search(r"filter +upstream backup +20\.00 +4\d\.\d\d\* +45\.60 +0\.64 +0\.\d\d +0\.64", shown.stdout)


def test_reproduction_has_no_placement_policy() -> None:
    shown = simulate("ha-table6", "--policy", "express")
    assert shown.exit_code == 2
    assert "ha-table6 compares recovery techniques: leave --policy out" in " ".join(shown.stderr.split())


def test_reproduction_names_a_missing_extra_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.dataflow.reproductions.ha_results.run_result", _never)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = simulate("ha-table6", "--picture", "table.png")
    assert (shown.exit_code, shown.stderr) == (
        1,
        "peacefs: simulate: a picture needs matplotlib: install peacefs[picture]\n",
    )
    monkeypatch.setitem(sys.modules, "peacefs.dataflow.reproductions.ha_results", None)
    shown = simulate("ha-table6")
    assert shown.exit_code == 1
    assert shown.stderr.endswith(": install peacefs[dataflow]\n")
    assert shown.stderr.count("\n") == 1


def _never(*_: object) -> list[TableRow]:
    raise AssertionError("there was no need to simulate")


def row(case: str, approach: str, recovery_ms: float, bandwidth: float, paper: float | None) -> TableRow:
    return TableRow(case, approach, paper, recovery_ms, 0.0, 45.0, paper, bandwidth, bandwidth, 1.0, 1)


ROWS = [
    row("25 ms", "upstream backup", 50.0, 1.3, None),
    row("50 ms", "upstream backup", 60.0, 0.6, 58.0),
    row("25 ms", "passive standby", 46.0, 112.0, None),
]


@pytest.mark.parametrize(
    ("name", "panels", "x_label"),
    [("ha-figure6", 1, "bandwidth overhead, %"), ("ha-table6", 2, "")],
)
def test_picture_has_a_line_for_each_technique(name: str, panels: int, x_label: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    axes = drawn(ROWS, name).axes
    assert len(axes) == panels
    for axis in axes:
        named = [line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]
        assert [str(line.get_label()).split(",")[0] for line in named] == ["upstream backup", "passive standby"]
        assert axis.get_xlabel() == x_label
        # The paper's one number is a cross.
        assert [len(points.get_offsets()) for points in axis.collections] == [1]


def test_picture_is_written_and_an_unknown_format_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    draw(ROWS, "ha-figure6", tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    with pytest.raises(BadRequest, match="nothing"):
        draw(ROWS, "ha-figure6", tmp_path / "figure.nothing")


def test_reproduction_tells_each_run_to_whoever_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(setup: Setup, technique: object, runs: int, on_run: Callable[[], None]) -> Measured:
        for _ in range(runs):
            on_run()
        return Measured(0.05, 0.0, 1.0, 1.0, runs)

    monkeypatch.setattr(ha_results, "measure", measured)
    told: list[None] = []
    rows = ha_results.run_result("ha-table7", 3, lambda: told.append(None))
    assert len(told) == 3 * len(rows) == 3 * len(ha_results.cells("ha-table7"))
