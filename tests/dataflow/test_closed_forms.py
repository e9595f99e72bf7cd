"""The closed forms of HA's Tables 3 and 4, with the paper's results for its own parameters."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.papers import closed_forms as papers
from peacefs.dataflow.advice import closed_forms
from peacefs.dataflow.advice.closed_forms import UnitLoad

#: HA's Table 5: a filter, and an aggregate over 100 rows that advances by 10.
FILTER = UnitLoad()
AGGREGATE = UnitLoad(selectivity=0.1, processing_s=100e-6, state_rows=100, state_rows_per_row=1)
UNION = UnitLoad(inputs=2)


@pytest.mark.parametrize(
    ("load", "upstream_backup", "active_standby"),
    [(FILTER, 0.64, 100.96), (AGGREGATE, 0.64, 100.96), (UNION, 1.28, 101.92)],
    ids=["filter", "aggregate", "union"],
)
def test_bandwidth_of_acknowledgements_is_that_of_the_paper(
    load: UnitLoad, upstream_backup: float, active_standby: float
) -> None:
    """Table 6, in percent: two numbers of 8 bytes per 50 input rows of 50 bytes, plus another one."""
    assert 100 * closed_forms.upstream_backup_bandwidth(load) == pytest.approx(upstream_backup)
    assert 100 * closed_forms.active_standby_bandwidth(load) == pytest.approx(active_standby)


def test_bandwidth_of_copies_is_that_of_new_rows_and_positions() -> None:
    # Each row is output, or enters the state, of which a tenth is output. Table 6 says 101.27 and 111.55.
    assert 100 * papers.passive_standby_bandwidth(FILTER) == pytest.approx(101.27, abs=0.5)
    assert 100 * papers.passive_standby_bandwidth(AGGREGATE) == pytest.approx(111.55, abs=1)


def test_bandwidth_of_precise_upstream_backup_has_a_number_with_each_row() -> None:
    """HA 7.2: "a little over 16 %"."""
    assert closed_forms.upstream_backup_bandwidth(AGGREGATE, precise=True) == pytest.approx(0.16 + 0.0064)


def test_recovery_begins_when_the_input_is_redirected() -> None:
    """K = r + d; after that, Q rows are processed in p each."""
    assert closed_forms.first_row_s(FILTER) == pytest.approx(0.045)
    assert closed_forms.passive_standby_replayed_rows(FILTER) == pytest.approx(25)
    assert closed_forms.passive_standby_recovery_s(AGGREGATE) == pytest.approx(0.045 + 25 * 100e-6)
    assert closed_forms.upstream_backup_replayed_rows(FILTER) == pytest.approx(60)
    assert closed_forms.upstream_backup_replayed_rows(AGGREGATE) == pytest.approx(160)
    assert closed_forms.upstream_backup_recovery_s(AGGREGATE) == pytest.approx(0.045 + 160 * 100e-6)


def test_recovery_of_an_active_standby_is_to_send_what_it_has_not_trimmed() -> None:
    assert closed_forms.active_standby_repeated_rows(FILTER) == pytest.approx(35)
    assert closed_forms.active_standby_recovery_s(FILTER) == pytest.approx(35 * 25e-6)
    assert closed_forms.active_standby_recovery_s(AGGREGATE) == pytest.approx(3.5 * 25e-6)
    # HA 7.2: precise recovery takes r longer.
    more_s = closed_forms.active_standby_recovery_s(FILTER, precise=True) - 35 * 25e-6
    assert more_s == pytest.approx(FILTER.redirection_s)


def test_rows_that_come_again_are_those_that_were_processed_again() -> None:
    assert papers.passive_standby_repeated_rows(FILTER) == pytest.approx(50)
    assert papers.upstream_backup_repeated_rows(FILTER) == pytest.approx(60)
    assert papers.upstream_backup_repeated_rows(AGGREGATE) == pytest.approx(6)


def test_longer_intervals_cost_less_and_recover_later() -> None:
    from dataclasses import replace

    often, seldom = (replace(AGGREGATE, interval_s=interval_s) for interval_s in (0.025, 0.2))
    for recovery, bandwidth in (
        (closed_forms.passive_standby_recovery_s, papers.passive_standby_bandwidth),
        (closed_forms.upstream_backup_recovery_s, closed_forms.upstream_backup_bandwidth),
        (closed_forms.active_standby_recovery_s, closed_forms.active_standby_bandwidth),
    ):
        assert recovery(often) < recovery(seldom)
        assert bandwidth(often) > bandwidth(seldom)


def _lifetime_s(pairs: list[tuple[int, int]], nodes: int, mttf_s: float, repair_s: float, seed: int) -> float:
    """Return the time until both nodes of a pair have failed; nodes fail at random times and are repaired."""
    chance = random.Random(seed)
    back_s = [0.0] * nodes
    fails_s = [chance.expovariate(1 / mttf_s) for _ in range(nodes)]
    others = {node: [pair[pair[0] == node] for pair in pairs if node in pair] for node in range(nodes)}
    while True:
        node = min(range(nodes), key=lambda each: fails_s[each])
        now_s = fails_s[node]
        if any(back_s[other] > now_s for other in others[node]):
            return now_s
        back_s[node] = now_s + repair_s
        fails_s[node] = back_s[node] + chance.expovariate(1 / mttf_s)


@pytest.mark.parametrize(("nodes", "chained"), [(2, False), (8, False), (8, True), (32, True)])
def test_mttf_of_partition_pairs_is_twice_what_is_played(nodes: int, chained: bool) -> None:
    """Flux's formula counts only runs in which one given node of the pair fails first; here either may."""
    mttf_s, repair_s = 1000.0, 5.0
    around = [(node, (node + 1) % nodes) for node in range(0, nodes, 1 if chained else 2)]
    played = statistics.mean(_lifetime_s(around, nodes, mttf_s, repair_s, seed) for seed in range(300))
    said = papers.partition_pairs_mttf_s(nodes, mttf_s, repair_s, chained=chained)
    assert played == pytest.approx(said / 2, rel=0.2)


def test_mttf_of_cluster_pairs_falls_with_the_square_of_nodes() -> None:
    """Flux 4.2: quadratically, divided by N / 2 if nodes are repaired one by one; linearly for partition pairs."""
    day, minute = 86_400.0, 60.0
    at = {nodes: papers.cluster_pairs_mttf_s(nodes, 100 * day, minute) for nodes in (2, 20, 200)}
    assert at[2] == papers.pair_mttf_s(100 * day, minute)
    assert at[20] / at[200] == pytest.approx(100)
    one_by_one = papers.cluster_pairs_mttf_s(20, 100 * day, minute, all_at_once=False)
    assert at[20] / one_by_one == pytest.approx(10)
    parts = [papers.partition_pairs_mttf_s(nodes, 100 * day, minute) for nodes in (2, 20, 200)]
    assert parts[0] == at[2] and parts[1] / parts[2] == pytest.approx(10)
