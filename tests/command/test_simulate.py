"""`peacefs simulate`: its output for people and for scripts, and early refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.commands.comparison_picture import draw, drawn, lines_of
from peacefs.peace.simulator import comparison
from peacefs.peace.simulator.comparison import POLICIES, Row
from peacefs.peace.simulator.scenarios import SCENARIOS, Case, all_at_once, paper_cluster
from peacefs.protocol.errors import BadRequest

KEYS = [
    *("policy", "writers", "mb", "from_request_s", "span_s", "makespan_s"),
    *("bound_mean_s", "bound_makespan_s"),
]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["simulate", *arguments], prog_name="peacefs", env={"COLUMNS": "80"})


@pytest.fixture(autouse=True)
def _small_figure10(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(writers, 128, lambda _: paper_cluster(), all_at_once(writers, 128)) for writers in (4, 8)]
    monkeypatch.setitem(SCENARIOS, "figure10", lambda: cases)


def test_the_rows_as_json_are_those_of_the_comparison() -> None:
    shown = simulate("figure10", "--seeds", "2", "--json")
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert [list(row) for row in rows] == [KEYS] * 8
    assert [row["policy"] for row in rows[:4]] == ["random", "paper-3", "paper-5", "express"]
    assert [Row(**row) for row in rows] == comparison.run_scenario("figure10", range(2))


def test_the_table_has_each_policy_beside_the_bounds_with_its_ratio_to_random() -> None:
    shown = simulate("figure10", "--seeds", "2", "--policy", "random", "--policy", "express")
    assert "means over 2 seeds" in shown.stdout
    hdfs, express = comparison.run_scenario("figure10", range(2), ("random", "express"))[2:]
    (line,) = re.findall(r"^ +8 .*express.*$", shown.stdout, re.MULTILINE)
    assert f"{express.span_s:.1f} ({express.span_s / hdfs.span_s:.2f})" in line
    assert line.split()[-2:] == [f"{express.bound_mean_s:.1f}", f"{express.bound_makespan_s:.1f}"]
    assert "…" not in shown.stdout


def test_without_random_there_is_nothing_to_compare_with() -> None:
    shown = simulate("figure10", "--seeds", "1", "--policy", "express")
    assert shown.exit_code == 0
    assert not re.search(r"\(\d", shown.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("figure11",), "there is no scenario 'figure11'; there are figure10, staggered"),
        (("figure10", "--policy", "best"), "there is no policy 'best'; there are random"),
        (("figure10", "--seeds", "0"), "--seeds"),
    ],
)
def test_unknown_names_are_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    shown = simulate(*arguments)
    assert shown.exit_code == 2
    assert said in " ".join(shown.stderr.split())


def test_the_help_names_every_scenario_and_policy() -> None:
    # Lines are also broken after hyphens.
    words = set(re.findall(r"[\w-]+", re.sub(r"-\n\s+", "-", simulate("--help").stdout)))
    assert {*SCENARIOS, *POLICIES} <= words


def test_a_missing_extra_is_named_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("peacefs.commands.simulate_command.run_scenario", _never)
    shown = simulate("figure10", "--picture", "figure10.png")
    assert shown.exit_code == 1
    assert shown.stderr == "peacefs: simulate: a picture needs matplotlib: install peacefs[picture]\n"


def _never(*_: object) -> list[Row]:
    raise AssertionError("there was no need to simulate")


ROWS = [
    Row("random", 16, 128, 13.0, 13.0, 15.0, 4.5, 8.0),
    Row("express", 16, 128, 6.0, 3.3, 9.0, 4.5, 8.0),
    Row("random", 8, 128, 8.0, 8.0, 9.0, 3.0, 5.0),
    Row("express", 8, 512, 13.0, 8.5, 22.0, 11.0, 20.0),
]


def test_a_picture_has_a_panel_for_each_size_and_a_line_for_each_policy_and_the_bound() -> None:
    assert lines_of(ROWS) == {
        128: {"random": [(8, 8.0), (16, 13.0)], "express": [(16, 6.0)], "bound": [(8, 3.0), (16, 4.5)]},
        512: {"express": [(8, 13.0)], "bound": [(8, 11.0)]},
    }


def test_a_picture_is_drawn_and_an_unknown_format_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    highest_s = max(row.from_request_s for row in ROWS)
    for axis in drawn(ROWS, "figure10").axes:
        assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > highest_s
    draw(ROWS, "figure10", tmp_path / "figure10.svg")
    assert "<svg" in (tmp_path / "figure10.svg").read_text()
    with pytest.raises(BadRequest, match="nothing"):
        draw(ROWS, "figure10", tmp_path / "figure10.nothing")


def test_every_run_is_told_to_whoever_shows_progress() -> None:
    told: list[None] = []
    comparison.run_scenario("figure10", range(2), ["random"], lambda: told.append(None))
    assert len(told) == 4
