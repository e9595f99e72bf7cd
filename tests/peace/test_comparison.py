"""Policies compared: the default policy's advantage over HDFS's placement, and its distance from the bounds."""

from __future__ import annotations

import sys
from random import Random

import pytest

from peacefs.peace.simulator.comparison import POLICIES, Row, run_scenario
from peacefs.peace.simulator.scenarios import SCENARIOS, Case, all_at_once, paper_cluster, star
from peacefs.protocol.errors import Unsupported

SEEDS = range(8)

#: Figure 10's cells, by (writers, MB): the minimum factors by which the span and the time from request must be
#: shorter than under `random`, and the maximum ratios to the bounds on mean and makespan. With 8 writers of two
#: chunks each there are barely two rounds of chunks, of which the second leaves the link half empty: no policy
#: tried comes nearer to that makespan bound (decision 14 has what was tried).
PROMISES = {
    (8, 128): (2.3, 1.9, 1.38, 1.30),
    (8, 256): (2.5, 1.9, 1.27, 1.12),
    (8, 512): (2.5, 1.9, 1.25, 1.13),
    (16, 128): (2.5, 2.0, 1.35, 1.18),
    (16, 256): (4.8, 2.1, 1.25, 1.10),
    (16, 512): (4.8, 2.1, 1.25, 1.10),
}


@pytest.fixture(scope="module")
def figure10() -> dict[tuple[str, int, int], Row]:
    rows = run_scenario("figure10", SEEDS)
    return {(row.policy, row.writers, row.mb): row for row in rows}


@pytest.mark.parametrize("cell", PROMISES)
def test_express_beats_hdfs_in_every_cell_of_figure_10(
    figure10: dict[tuple[str, int, int], Row], cell: tuple[int, int]
) -> None:
    hdfs, express = figure10["random", *cell], figure10["express", *cell]
    span, from_request, _, _ = PROMISES[cell]
    assert hdfs.span_s / express.span_s >= span
    assert hdfs.from_request_s / express.from_request_s >= from_request
    assert express.makespan_s / hdfs.makespan_s <= 0.85


@pytest.mark.parametrize("cell", PROMISES)
def test_express_is_near_the_bounds_and_nobody_is_below_them(
    figure10: dict[tuple[str, int, int], Row], cell: tuple[int, int]
) -> None:
    _, _, mean, makespan = PROMISES[cell]
    express = figure10["express", *cell]
    assert express.from_request_s / express.bound_mean_s <= mean
    assert express.makespan_s / express.bound_makespan_s <= makespan
    for policy in ("random", "paper-3", "paper-5", "express"):
        row = figure10[policy, *cell]
        assert row.from_request_s >= row.bound_mean_s and row.makespan_s >= row.bound_makespan_s


@pytest.mark.parametrize("cell", PROMISES)
def test_express_beats_the_paper_on_every_measure(
    figure10: dict[tuple[str, int, int], Row], cell: tuple[int, int]
) -> None:
    express = figure10["express", *cell]
    for policy in ("paper-3", "paper-5"):
        paper = figure10[policy, *cell]
        assert express.from_request_s < paper.from_request_s
        assert express.span_s < paper.span_s
        assert express.makespan_s < paper.makespan_s


def test_the_published_system_gives_its_own_figures(figure10: dict[tuple[str, int, int], Row]) -> None:
    """16 writers of 512 MB: one checkpoint takes 45 s, all take 55 s to 75 s (section 1)."""
    hdfs, paper = figure10["random", 16, 512], figure10["paper-3", 16, 512]
    assert hdfs.from_request_s == pytest.approx(45, rel=0.05)
    assert paper.span_s == pytest.approx(22.7, rel=0.1)
    assert paper.makespan_s == pytest.approx(75, rel=0.07)


@pytest.mark.parametrize("scenario", ["staggered", "slow-node", "mixed"])
def test_express_is_no_worse_than_hdfs_on_other_loads(scenario: str) -> None:
    assert_no_worse(run_scenario(scenario, range(3), ("random", "express")))


def test_express_is_no_worse_than_hdfs_where_network_cards_are_the_limit() -> None:
    assert_no_worse(run_scenario("nic-bound", range(1), ("random", "express")))


def test_express_is_no_worse_than_hdfs_in_a_larger_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario `large`, with a quarter of its racks and nodes."""
    case = Case(24, 256, lambda _: star(5, 10, 4.0), all_at_once(24, 256))
    monkeypatch.setitem(SCENARIOS, "large", lambda: [case])
    assert_no_worse(run_scenario("large", range(2), ("random", "express")))


def assert_no_worse(rows: list[Row]) -> None:
    assert [row.policy for row in rows] == ["random", "express"] * (len(rows) // 2)
    for hdfs, express in zip(rows[::2], rows[1::2], strict=True):
        assert express.from_request_s <= 1.02 * hdfs.from_request_s
        assert express.span_s <= 1.02 * hdfs.span_s
        assert express.makespan_s <= 1.02 * hdfs.makespan_s


def test_without_or_tools_the_policy_flow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peacefs.peace.policies.flow", None)
    with pytest.raises(Unsupported, match=r"install peacefs\[flow\]"):
        POLICIES["flow"](paper_cluster(), Random(0))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_seed_gives_the_same_row(policy: str) -> None:
    assert run_scenario("slow-node", [4], [policy]) == run_scenario("slow-node", [4], [policy])
