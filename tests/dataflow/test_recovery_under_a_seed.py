"""A failure at any step of a run: the output is what the technique promises."""

from __future__ import annotations

import random
from functools import cache

import pytest
from simulation.seeds import seeds
from support.dataflows import SAMPLES, SCHEMA, Sample, input_rows, repeatable
from support.random_failures import random_failures, rows_seed
from support.steps import steps

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Failure, Hang, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import QueryFailed

#: From best to worst.
_WORSE = list(Recovery)
_NOT_ARBITRARY = [each for each in OperatorClass if each is not OperatorClass.ARBITRARY]


def play(
    sample: Sample, technique: Technique, *failures: Failure, seed: int = 1, given: int = 1, **how: object
) -> Outcome:
    """Play a run; `given` is the seed of the rows."""
    rows = sample.rows(given)
    how = {"times": VirtualTimes(rows_every_s=0.04, store_s=0.05), **how}
    return SeededRun(sample.network, technique, rows, seed=seed, failures=failures, **how).run()  # type: ignore[arg-type]


def verdict(sample: Sample, expected: Outcome, observed: Outcome) -> Recovery:
    return compare_outputs(
        expected.rows("out"), observed.rows("out"), subject=sample.subject, carries=sample.carries
    )


def sguard(*, precise: bool = True) -> SGuard:
    return SGuard(interval_s=0.06, precise=precise)


def node_of(expected: Outcome, unit: str) -> str:
    (node,) = [node for name, node in expected.places if name == unit]
    return node


@pytest.mark.parametrize("network", _NOT_ARBITRARY, ids=str)
def test_sguard_is_precise_after_a_failure_at_any_step(network: OperatorClass) -> None:
    """Each node is killed before some steps, and the output is the same row for row."""
    sample = SAMPLES[network]()
    expected = play(sample, sguard())
    assert expected.checkpoints_stored > 2
    assert sguard().promises(sample.network.operator_class) is Recovery.PRECISE
    for first, node in enumerate(sorted({node for _, node in expected.places})):
        for step in steps(expected.steps, every=16, offset=7 * first):
            observed = play(sample, sguard(), Kill(step, node))
            assert observed.rows("out") == expected.rows("out"), f"{node} killed before step {step}"


@pytest.mark.parametrize(
    ("network", "promised"),
    [
        (OperatorClass.REPEATABLE, Recovery.REPEATING),
        (OperatorClass.CONVERGENT_CAPABLE, Recovery.REPEATING),
        (OperatorClass.DETERMINISTIC, Recovery.REPEATING),
        (OperatorClass.ARBITRARY, Recovery.DIVERGENT),
    ],
    ids=str,
)
def test_sguard_without_precision_recovers_as_passive_standby(network: OperatorClass, promised: Recovery) -> None:
    """The output of the failed unit matches the passive standby row of HA's Table 2."""
    sample = SAMPLES[network]()
    expected = play(sample, sguard(precise=False))
    assert sguard(precise=False).promises(sample.network.operator_class) is promised
    seen = set()
    for step in steps(expected.steps, every=18):
        observed = play(sample, sguard(precise=False), Kill(step, node_of(expected, sample.unit)))
        seen.add(verdict(sample, expected, observed))
    assert max(seen, key=_WORSE.index) is promised, "nothing that is worse than promised"


@pytest.mark.parametrize("network", [OperatorClass.REPEATABLE, OperatorClass.CONVERGENT_CAPABLE], ids=str)
def test_amnesia_leaves_a_gap(network: OperatorClass) -> None:
    sample = SAMPLES[network]()
    expected = play(sample, Amnesia())
    verdicts = [
        verdict(sample, expected, play(sample, Amnesia(), Kill(step, node_of(expected, "second"))))
        for step in steps(expected.steps, every=20)
    ]
    assert Recovery.GAP in verdicts
    assert Recovery.REPEATING not in verdicts


def test_amnesia_costs_nothing_without_a_failure() -> None:
    sample = repeatable()
    outcome = play(sample, Amnesia())
    assert outcome.checkpoints_stored == 0
    # Rows are kept only until the second unit has requested the first of them.
    assert outcome.held_bytes_max < sum(batch.nbytes for batch in sample.rows(1)["in"]) / 2


@cache
def unharmed(network: OperatorClass, given: int) -> tuple[Sample, Outcome]:
    sample = SAMPLES[network]()
    return sample, play(sample, sguard(), given=given)


@pytest.mark.parametrize("seed", seeds(40))
def test_sguard_is_precise_whatever_fails(seed: int) -> None:
    """Several failures of any kind, also during a recovery; some node always survives."""
    chance = random.Random(seed)
    given = rows_seed(seed)
    sample, expected = unharmed(chance.choice(_NOT_ARBITRARY), given)
    failures = random_failures(chance, expected.steps)
    observed = play(sample, sguard(), *failures, seed=seed, given=given)
    assert observed.rows("out") == expected.rows("out"), failures


def test_node_that_hung_is_fenced_when_it_comes_back() -> None:
    """The node is considered dead, and what it sends later is ignored."""
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    expected = play(sample, sguard())
    for step in steps(expected.steps, every=28, begin=20):
        observed = play(sample, sguard(), Hang(step, node_of(expected, "second"), for_s=1.2))
        assert observed.rows("out") == expected.rows("out"), step


def test_memory_is_bounded_while_a_consumer_is_away() -> None:
    """The second unit dies or hangs: the source waits, and nothing is lost."""
    sample = repeatable()
    rows = sample.rows(1, batches=60)
    batch = max(batch.nbytes for batch in rows["in"])
    bounds = Bounds(credit_bytes=4 * batch, buffer_bytes_max=10 * batch)
    assert sum(batch.nbytes for batch in rows["in"]) > 3 * bounds.buffer_bytes_max

    def run(*failures: Failure) -> Outcome:
        how = {
            "seed": 1,
            "failures": failures,
            "bounds": bounds,
            "times": VirtualTimes(rows_every_s=0.01, store_s=0.01),
        }
        return SeededRun(sample.network, sguard(), rows, **how).run()  # type: ignore[arg-type]

    expected = run()
    away = node_of(expected, "second")
    for failure in (Kill(150, away), Hang(150, away, for_s=0.7)):
        observed = run(failure)
        assert observed.rows("out") == expected.rows("out")
        assert 0 < observed.held_bytes_max < bounds.buffer_bytes_max + 2 * batch
        assert observed.queued_bytes_max < bounds.credit_bytes + 2 * batch
        assert observed.seconds > expected.seconds + 0.4, "the source did not wait"


def test_operator_that_raises_stops_the_query_with_its_rows() -> None:
    from peacefs.dataflow import Query

    def broken(rows: object) -> object:
        raise ZeroDivisionError("there is no row 0")

    sample = repeatable()
    query = Query("q")
    schema = sample.network.sources[0].type.schema
    query.source("in", schema, time="at").map(broken, name="risky").sink("out")  # type: ignore[arg-type]
    with pytest.raises(
        QueryFailed, match="operator 'risky' failed on rows 1 to 4 of 'in': ZeroDivisionError: there is no"
    ):
        SeededRun(query.network(), sguard(), sample.rows(1), seed=1).run()


def test_run_is_the_same_under_the_same_seed() -> None:
    sample = SAMPLES[OperatorClass.ARBITRARY]()
    first, again = (play(sample, sguard(), Kill(50, "node-1"), seed=5) for _ in range(2))
    assert (first.steps, first.seconds, first.rows("out")) == (again.steps, again.seconds, again.rows("out"))


def test_stream_from_a_source_straight_to_a_sink_carries_its_rows_and_ends() -> None:
    query = Query("first")
    query.source("in", SCHEMA, time="at").sink("out")
    network = query.network()
    assert network.types[network.sinks[0].input].schema == SCHEMA
    rows = input_rows(1, batches=4, size=3)
    played = SeededRun(network, sguard(), {"in": rows}, seed=1).run()
    assert played.rows("out") == [tuple(row.values()) for batch in rows for row in batch.to_pylist()]
