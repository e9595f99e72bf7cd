"""CEC with a failure at any step of a run: the output is row for row that of a run without a failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import SAMPLES, SCHEMA, Sample, input_rows
from support.random_failures import random_failures, rows_seed
from support.steps import steps

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Failure, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.window_checkpoints.extent import CostBenefit, OpenOnly, Targets
from peacefs.protocol.errors import InvalidQuery


@dataclass(frozen=True)
class Windows(Sample):
    @property
    def windowed(self) -> str:
        """The name of the unit with the windows."""
        kinds = {unit.name: {node.specification.kind for node in unit.operators} for unit in self.network.units}
        return next(name for name, found in kinds.items() if found & {"aggregate", "join"})


def counted() -> Windows:
    """Return non-overlapping windows of three rows per key, with a mean (two accumulators) and a string."""
    query = Query("counted")
    rows = query.source("in", SCHEMA, time="at").filter(F.col("value") != 5)
    windows = rows.unit("second").key_by("key").count_window(3)
    windows.aggregate(F.mean("value"), F.max("key").alias("greatest")).filter(F.col("mean_value") >= 0).sink("out")
    return Windows(query.network(), lambda row: (row[0], row[1]))


def spaced() -> Windows:
    """Return windows of two rows in every five: some rows are in no window."""
    query = Query("spaced")
    windows = query.source("in", SCHEMA, time="at").key_by("key").count_window(2, every=5)
    windows.aggregate(F.count(), F.sum("value")).sink("out")
    return Windows(query.network(), lambda row: (row[0], row[1]))


def together() -> Windows:
    """Return windows over all keys together."""
    query = Query("together")
    windows = query.source("in", SCHEMA, time="at").count_window(7)
    windows.aggregate(F.count(), F.sum("value")).sink("out")
    return Windows(query.network(), lambda row: row[0])


def late() -> Windows:
    """Return time windows over rows that come out of order, some too late for their windows."""
    query = Query("late")
    windows = query.source("in", SCHEMA, time="at").key_by("key").window("3s", every="1s", lateness="1s")
    windows.aggregate(F.count(), F.sum("value"), F.min("value")).sink("out")
    return Windows(query.network(), lambda row: (row[0], row[1]))


def joined() -> Windows:
    query = Query("joined")
    left = query.source("in", SCHEMA, time="at").filter(F.col("value") != 3)
    right = query.source("more", SCHEMA, time="at").select("key", "at", other=F.col("value"))
    left.key_by("key").join(right.key_by("key"), within="2s").sink("out")
    return Windows(query.network(), lambda row: row)


def known(network: OperatorClass) -> Windows:
    sample = SAMPLES[network]()
    return Windows(sample.network, sample.subject)


QUERIES: dict[str, Callable[[], Windows]] = {
    "sliding time windows": lambda: known(OperatorClass.CONVERGENT_CAPABLE),
    "late rows": late,
    "sliding count windows": lambda: known(OperatorClass.DETERMINISTIC),
    "count windows": counted,
    "spaced count windows": spaced,
    "windows of all keys": together,
    "join": joined,
}


def cec() -> CEC:
    """Return a CEC that commits and checks often, so that failures hit every stage."""
    return CEC(Targets(extent=1.0, replay_rows=6), interval_s=0.005, period_s=0.02, commit_s=0.02)


def rows_of(sample: Sample, seed: int) -> dict[str, list[pa.RecordBatch]]:
    rows = sample.rows(seed)
    if sample.network.name == "late":
        chance = random.Random(seed)
        rows["in"] = [batch.take(chance.sample(range(len(batch)), len(batch))) for batch in rows["in"]]
        rows["in"][2], rows["in"][3] = rows["in"][3], rows["in"][2]
    return rows


def play(sample: Sample, technique: Technique, *failures: Failure, seed: int = 1, given: int = 1) -> Outcome:
    """Play a run; `given` is the seed of the rows."""
    how = {"seed": seed, "failures": failures, "times": VirtualTimes(rows_every_s=0.04, store_s=0.03)}
    return SeededRun(sample.network, technique, rows_of(sample, given), **how).run()  # type: ignore[arg-type]


@cache
def unharmed(name: str, given: int = 1) -> tuple[Windows, Outcome]:
    """Play a run without a failure, and check that it gives the same rows as Amnesia."""
    sample = QUERIES[name]()
    return sample, expected_of(sample, given)


def expected_of(sample: Sample, given: int = 1) -> Outcome:
    expected = play(sample, cec(), given=given)
    assert expected.rows("out") == play(sample, Amnesia(), given=given).rows("out")
    assert len(expected.rows("out")) > 3
    return expected


@pytest.mark.parametrize("name", QUERIES)
def test_cec_is_precise_after_a_failure_at_any_step(name: str) -> None:
    """Each node is killed at steps during a commit, a check, a trim, a load, and a replay."""
    sample, expected = unharmed(name)
    assert expected.checkpoints_stored > 3
    assert cec().promises(sample.network.operator_class) is Recovery.PRECISE
    for unit, node in expected.places:
        # The other unit has no windows.
        for step in steps(expected.steps, every=12 if unit == sample.windowed else 45):
            observed = play(sample, cec(), Kill(step, node))
            found = compare_outputs(expected.rows("out"), observed.rows("out"), subject=sample.subject)
            assert found is Recovery.PRECISE, f"{node} killed before step {step}"


def test_cec_is_precise_for_units_without_windows() -> None:
    sample = SAMPLES[OperatorClass.REPEATABLE]()
    expected = expected_of(sample)
    for step in steps(expected.steps, every=15):
        observed = play(sample, cec(), Kill(step, "node-2"))
        assert observed.rows("out") == expected.rows("out"), f"killed before step {step}"


def test_cec_is_precise_for_each_output_of_a_unit() -> None:
    """The unit outputs its rows, windows over them, and a filtered stream of these windows."""
    query = Query("outputs")
    rows = query.source("in", SCHEMA, time="at").filter(F.col("value") != 5)
    windows = rows.key_by("key").count_window(3).aggregate(F.sum("value"))
    rows.sink("rows")
    windows.sink("windows")
    windows.filter(F.col("sum_value") > 40).sink("out")
    sample = Windows(query.network(), lambda row: row)
    (plan,) = sample.network.units
    assert len(plan.outputs) == 3
    expected = play(sample, cec())
    (node,) = {node for _, node in expected.places}
    for step in steps(expected.steps, every=10):
        observed = play(sample, cec(), Kill(step, node))
        for sink in expected.sinks:
            assert observed.rows(sink) == expected.rows(sink), f"{sink} of a run with a kill before step {step}"


@pytest.mark.parametrize("name", QUERIES)
def test_cec_is_precise_after_a_crash_in_the_middle_of_a_recovery(name: str) -> None:
    sample, expected = unharmed(name)
    (lost,) = [node for unit, node in expected.places if unit == sample.windowed]
    first = expected.steps // 2
    for after in steps(90, every=16, begin=1):
        observed = play(
            sample, cec(), Kill(first, lost), *(Kill(first + after, n) for n in ("node-1", "node-2") if n != lost)
        )
        assert observed.rows("out") == expected.rows("out"), f"killed again {after} steps later"


@pytest.mark.parametrize("seed", seeds(60))
def test_cec_is_precise_whatever_fails(seed: int) -> None:
    """Several failures of any kind, with any choice of windows; some node always survives."""
    chance = random.Random(seed)
    given = rows_seed(seed)
    sample, expected = unharmed(chance.choice(list(QUERIES)), given)
    failures = random_failures(chance, expected.steps)
    choice = chance.choice(
        [
            OpenOnly(),
            Targets(extent=None, replay_rows=3),
            Targets(extent=1.0, replay_rows=None),
            CostBenefit(failures_per_day=1e6),
        ]
    )
    technique = CEC(choice, period_s=0.01, commit_s=chance.choice([0.001, 0.1, 0.5]))
    observed = play(sample, technique, *failures, seed=seed, given=given)
    assert observed.rows("out") == expected.rows("out"), failures


def _union(query: Query) -> Query:
    one, other = query.source("in", SCHEMA, time="at"), query.source("more", SCHEMA, time="at")
    return one.union(other).sink("out")


def _two_windows(query: Query) -> Query:
    windows = query.source("in", SCHEMA, time="at").key_by("key").count_window(2).aggregate(F.sum("value"))
    return windows.key_by("key").count_window(2).aggregate(F.count()).sink("out")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_union, r"CEC does not cover 'union-1' \(union\).*put sort\(\) or a join in its place"),
        (_two_windows, r"unit 'refused' has 'aggregate-1' and 'aggregate-2'.*unit\(\), or choose SGuard"),
        (
            lambda query: (
                query.source("in", SCHEMA, time="at")
                .count_window(3, timeout="1s")
                .aggregate(F.count())
                .sink("out")
            ),
            r"does not cover 'aggregate-1': what a timeout does.*leave the timeout out, or choose SGuard",
        ),
        (
            lambda query: query.source("in", SCHEMA, time="at").sort("1s").sink("out"),
            r"CEC covers aggregates over windows, joins.*'sort-1' is sort: leave it out, or choose SGuard",
        ),
    ],
    ids=["union", "two windows", "timeout", "sort"],
)
def test_cec_refuses_a_query_that_it_does_not_cover(build: Callable[[Query], Query], reason: str) -> None:
    network: Network = build(Query("refused")).network()
    with pytest.raises(InvalidQuery, match=reason):
        SeededRun(
            network, CEC(), {source.name: input_rows(1, batches=1, size=1) for source in network.sources}, seed=1
        )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: CEC(interval_s=0.2, period_s=0.1), "checks take some of each period"),
        (lambda: CEC(commit_s=0), "commit_s=0"),
        (lambda: Targets(extent=0.5), "a load reads a tuple of each window"),
        (lambda: Targets(extent=None, replay_rows=None), "OpenOnly"),
        (lambda: Targets(replay_rows=0), "1 or more"),
        (lambda: CostBenefit(failures_per_day=0), "failures_per_day=0: it must be above 0|above 0"),
    ],
)
def test_cec_refuses_parameters_that_cannot_be(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(InvalidQuery, match=reason):
        make()


def test_windows_are_checked_early_when_producers_run_out_of_room() -> None:
    """Rows of open windows fill the producers' buffers, but no target asks for a check. The query ends."""
    query = Query("long windows")
    events = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    windows = events.unit("second").key_by("key").window("1h")
    network = windows.aggregate(F.count(), F.sum("value")).sink("out").network()
    rows = Sample(network, lambda row: row[0]).rows(1, batches=60)
    batch = max(each.nbytes for each in rows["in"])
    bounds = Bounds(credit_bytes=2 * batch, buffer_bytes_max=20 * batch)
    assert sum(each.nbytes for each in rows["in"]) > 2 * bounds.buffer_bytes_max
    run = SeededRun(
        network, CEC(OpenOnly()), rows, seed=1, bounds=bounds, times=VirtualTimes(rows_every_s=0.05, store_s=0.05)
    )
    observed = run.run(until_s=60.0)
    assert observed.source_held_bytes_max < bounds.buffer_bytes_max, "the source waited for windows"
