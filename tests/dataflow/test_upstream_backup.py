"""Upstream backup: a unit restarts empty, and its producers resend the rows that they kept for it.

`test_ha_table_two.py` checks its rows of HA's Table 2.
"""

from __future__ import annotations

import random
from functools import cache

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import input_rows, repeatable
from support.long_runs import often
from support.random_failures import random_failures
from support.steps import steps
from support.upstream_samples import CONVERGING, disordered_rows

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Failure, Hang, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.protocol.errors import QueryFailed

Rows = dict[str, list[pa.RecordBatch]]


def backup(*, precise: bool = True, adjacent_failures: bool = True) -> UpstreamBackup:
    return UpstreamBackup(interval_s=0.06, precise=precise, adjacent_failures=adjacent_failures)


def play(
    network: Network, rows: Rows, *failures: Failure, technique: UpstreamBackup | None = None, **how: object
) -> Outcome:
    how = {"seed": 1, "times": VirtualTimes(rows_every_s=0.04), **how}
    return SeededRun(network, technique or backup(), rows, failures=failures, **how).run()  # type: ignore[arg-type]


def node_of(expected: Outcome, unit: str) -> str:
    (node,) = [node for name, node in expected.places if name == unit]
    return node


# -- precise recovery -----------------------------------------------------------------------------------------


@cache
def converging(name: str) -> tuple[Network, Rows, Outcome]:
    network = CONVERGING[name]()
    rows = disordered_rows(network, 1)
    return network, rows, play(network, rows)


@pytest.mark.parametrize("name", CONVERGING)
def test_upstream_backup_is_precise_after_a_failure_at_any_step(name: str) -> None:
    """Rows come out of order and too late. The output is the same row for row, wherever a node was killed."""
    network, rows, expected = converging(name)
    assert backup().promises(network.operator_class) is Recovery.PRECISE
    for at, node in enumerate(sorted({node for _, node in expected.places})):
        for step in steps(expected.steps, every=60, offset=20 * at):
            observed = play(network, rows, Kill(step, node))
            assert observed.rows("out") == expected.rows("out"), f"{node} killed before step {step}"


@pytest.mark.parametrize("seed", seeds(40))
def test_upstream_backup_is_precise_whatever_fails(seed: int) -> None:
    """Several failures of any kind, also of neighbours and during recoveries."""
    chance = random.Random(seed)
    network, rows, expected = converging(chance.choice(sorted(CONVERGING)))
    failures = random_failures(chance, expected.steps)
    observed = play(network, rows, *failures, seed=seed)
    assert observed.rows("out") == expected.rows("out"), failures


# -- several failures at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("precise", [True, False])
def test_neighbours_that_die_together_lose_nothing(precise: bool) -> None:
    network, rows, expected = converging("sliding window")
    for step in steps(expected.steps, every=40):
        dead = [Kill(step, node_of(expected, unit)) for unit in ("first", "second")]
        observed = play(network, rows, *dead, technique=backup(precise=precise))
        if precise:
            assert observed.rows("out") == expected.rows("out"), step
        else:
            assert set(expected.rows("out")) <= set(observed.rows("out")), step


@pytest.mark.parametrize("precise", [True, False])
def test_neighbours_that_die_one_after_the_other_stop_a_query_that_keeps_less(precise: bool) -> None:
    """A row that the dead neighbours needed is gone: the query reports that, and no output is wrong or missing."""
    network, rows, expected = converging("sliding window")
    technique = {"technique": backup(precise=precise, adjacent_failures=False)}
    alone = play(network, rows, **technique)  # type: ignore[arg-type]
    said = []
    windows = {row[:2] for row in expected.rows("out")}

    def check(observed: Outcome) -> None:
        # Without precision, windows may count resent rows twice.
        assert windows <= {row[:2] for row in observed.rows("out")}
        assert not precise or observed.rows("out") == expected.rows("out")

    for step in steps(alone.steps - 20, every=12, begin=20):
        one, other = node_of(alone, "first"), node_of(alone, "second")
        for dead in ([Kill(step, one), Kill(step, other)], [Kill(step, one), Kill(step + 25, other)]):
            try:
                observed = play(network, rows, *dead, **technique)  # type: ignore[arg-type]
            except QueryFailed as failed:
                said.append(failed.message)
            else:
                check(observed)
    assert len(said) > 3
    assert set(said) == {"unit 'second' needs rows of 'select-1' that are gone"}
    for at, unit in enumerate(("first", "second", "third")):
        for step in steps(alone.steps, every=40, offset=13 * at):
            dies = Kill(step, node_of(alone, unit))
            check(play(network, rows, dies, **technique))  # type: ignore[arg-type]


# -- trimming ---------------------------------------------------------------------------------------------------


def _held(network: Network, batches: int, *failures: Failure, **how: object) -> tuple[Outcome, int]:
    rows = disordered_rows(network, 1, batches=batches)
    return play(network, rows, *failures, **how), max(batch.nbytes for each in rows.values() for batch in each)


@pytest.mark.parametrize("name", ["filter", "sliding window", "sort", "process", "joined windows"])
@pytest.mark.parametrize("precise", [True, False])
def test_trimming_keeps_no_more_in_a_long_run_than_in_a_short_one(name: str, precise: bool) -> None:
    """The query has three units in a row between the source and the sink."""
    network = CONVERGING[name]()
    technique = backup(precise=precise)
    batches = often(90, 200)
    short, _ = _held(network, batches // 5, technique=technique)
    long, batch = _held(network, batches, technique=backup(precise=precise))
    assert long.held_bytes_max < min(3 * short.held_bytes_max, batches * batch / 4)
    assert long.source_held_bytes_max < min(3 * short.source_held_bytes_max, batches * batch / 4)


def test_trimming_goes_on_after_a_failure() -> None:
    network = CONVERGING["sliding window"]()
    batches = often(170, 200)
    calm, _ = _held(network, batches)
    for unit in ("first", "second", "third"):
        failed, batch = _held(network, batches, Kill(150, node_of(calm, unit)))
        assert failed.recoveries > 0
        assert failed.held_bytes_max < batches * batch / 3
        assert failed.source_held_bytes_max < batches * batch / 3


def test_memory_is_bounded_while_a_consumer_is_away() -> None:
    sample = repeatable()
    rows = sample.rows(1, batches=60)
    batch = max(batch.nbytes for batch in rows["in"])
    bounds = Bounds(credit_bytes=4 * batch, buffer_bytes_max=10 * batch)
    expected = play(sample.network, rows, bounds=bounds, times=VirtualTimes(rows_every_s=0.01))
    away = node_of(expected, "second")
    for failure in (Kill(150, away), Hang(150, away, for_s=0.7)):
        observed = play(sample.network, rows, failure, bounds=bounds, times=VirtualTimes(rows_every_s=0.01))
        assert observed.rows("out") == expected.rows("out")
        # Received rows are kept for two or three intervals, in addition to those not yet received.
        assert 0 < observed.held_bytes_max < 3 * bounds.buffer_bytes_max < 60 * batch
        assert observed.queued_bytes_max < bounds.credit_bytes + 2 * batch
        assert observed.seconds > expected.seconds + 0.4, "the source did not wait"


def _kept_for_ever(*units: str) -> tuple[Network, Rows]:
    """Return a key that stays silent: resample needs its last row for ever."""
    query = Query("first")
    stream = query.source("in", repeatable().network.sources[0].type.schema, time="at")
    for unit in units:
        stream = stream.filter(F.col("value") >= 0).unit(unit)
    stream.key_by("key").resample("value", every="1s").sink("out")
    rows = input_rows(1, batches=60, size=4)
    keys = [pa.array(["silent"] + ["a"] * 3), *(pa.array(["a"] * 4) for _ in rows[1:])]
    return query.network(), {
        "in": [batch.set_column(0, "key", key) for batch, key in zip(rows, keys, strict=True)]
    }


@pytest.mark.parametrize("units", [(), ("second",)], ids=["a source", "a unit"])
def test_state_that_depends_on_too_many_rows_stops_the_query(units: tuple[str, ...]) -> None:
    """Otherwise it would block its producers for ever."""
    network, rows = _kept_for_ever(*units)
    bounds = Bounds(buffer_bytes_max=2000, retained_bytes_max=3000)
    with pytest.raises(QueryFailed, match=r"states of its consumers depend on are more than.*retained_bytes_max"):
        play(network, rows, bounds=bounds)
    # These rows exceed the limit for rows that consumers lack, but they block nobody.
    kept = play(network, rows, bounds=Bounds(buffer_bytes_max=2000))
    assert max(kept.held_bytes_max, kept.source_held_bytes_max) > 2 * 2000
