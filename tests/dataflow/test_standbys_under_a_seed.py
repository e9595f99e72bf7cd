"""Active and passive standby: a failure at every step of a run, and the resulting output."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, MutableMapping
from functools import cache

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import SAMPLES, SCHEMA, Row, Sample
from support.long_runs import often
from support.random_failures import rows_seed
from support.steps import steps

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import CutLink, Failure, Hang, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.protocol.errors import InvalidQuery, QueryFailed

_TECHNIQUES = [ActiveStandby, PassiveStandby]
_NODES = ("node-1", "node-2", "node-3")
_NOT_ARBITRARY = [each for each in OperatorClass if each is not OperatorClass.ARBITRARY]
_WORSE = list(Recovery)


def play(
    network: OperatorClass,
    technique: Technique,
    *failures: Failure,
    seed: int = 1,
    given: int = 1,
    **how: object,
) -> Outcome:
    """Play a run; `given` is the seed of the rows."""
    sample = sample_of(network)
    how = {"times": VirtualTimes(rows_every_s=0.04), **how}
    return SeededRun(sample.network, technique, sample.rows(given), seed=seed, failures=failures, **how).run()  # type: ignore[arg-type]


@cache
def unharmed(network: OperatorClass, technique: Callable[[], Technique], given: int = 1) -> Outcome:
    return play(network, technique(), given=given)


@cache
def sample_of(network: OperatorClass) -> Sample:
    return SAMPLES[network]()


def numbered_as_they_came(rows: list[Row], given: int = 1) -> list[Row]:
    """Return the failure-free output of the union if its inputs interleave as in `rows`."""
    sources = sample_of(OperatorClass.ARBITRARY).rows(given)
    waiting = {name: [row for batch in batches for row in batch.to_pylist()] for name, batches in sources.items()}
    made = []
    for number, row in enumerate(rows):
        source = next((each for each in waiting.values() if each and each[0]["value"] == row[2]), None)
        if source is None:
            break
        first = source.pop(0)
        made.append((f"row {number + 1}", first["at"], first["value"]))
    left = [row for source in waiting.values() for row in source]
    return [*made, *(("lost", row["at"], row["value"]) for row in left)]


def verdict(network: OperatorClass, expected: Outcome, observed: Outcome, given: int = 1) -> Recovery:
    sample, rows = sample_of(network), observed.rows("out")
    precise = expected.rows("out") if network in _NOT_ARBITRARY else numbered_as_they_came(rows, given)
    return compare_outputs(precise, rows, subject=sample.subject, carries=sample.carries)


@pytest.mark.parametrize("network", OperatorClass, ids=str)
@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_standby_is_precise_after_a_failure_at_any_step(
    technique: Callable[[], Technique], network: OperatorClass
) -> None:
    """Kill each node, with its primaries and standbys, at some steps. A union keeps its interleaving."""
    expected = unharmed(network, technique)
    assert verdict(network, expected, expected) is Recovery.PRECISE
    assert technique().promises(network) is Recovery.PRECISE
    recovered = played = 0
    for first, node in enumerate(_NODES):
        for step in steps(expected.steps, every=32, offset=11 * first):
            observed = play(network, technique(), Kill(step, node))
            assert verdict(network, expected, observed) is Recovery.PRECISE, f"{node} killed before step {step}"
            recovered += observed.recoveries
            played += 1
    assert recovered > played / 4, "many failures were those of a primary"


@pytest.mark.parametrize("network", OperatorClass, ids=str)
@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_standby_without_precision_gives_the_row_of_the_table(
    technique: Callable[..., Technique], network: OperatorClass
) -> None:
    """HA's Table 2, for the output of the failed unit: repeating, and divergent for arbitrary networks."""
    promised = Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.REPEATING
    assert technique(precise=False).promises(network) is promised
    expected = play(network, technique(precise=False))
    (node,) = [node for unit, node in expected.primaries if unit == sample_of(network).unit]
    seen = {
        verdict(network, expected, play(network, technique(precise=False), Kill(step, node)))
        for step in steps(expected.steps, every=12)
    }
    assert max(seen, key=_WORSE.index) is promised, "nothing that is worse than promised"


@pytest.mark.parametrize("technique", _TECHNIQUES)
@pytest.mark.parametrize("seed", seeds(20))
def test_standby_is_precise_whatever_connection_breaks(technique: Callable[[], Technique], seed: int) -> None:
    """One node dies or hangs, and comes back. Connections break at any time, also those within a pair."""
    chance = random.Random(seed)
    network, given = chance.choice(list(OperatorClass)), rows_seed(seed)
    expected = unharmed(network, technique, given)
    step = chance.randrange(expected.steps * 2)
    node = chance.choice(_NODES)
    failures: list[Failure] = [
        chance.choice(
            [
                Kill(step, node, back_after_s=chance.uniform(0.01, 2)),
                Hang(step, node, for_s=chance.uniform(0.01, 3)),
            ]
        )
    ]
    for _ in range(chance.randint(1, 5)):
        one, other = chance.sample([*_NODES, "edge"], 2)
        failures.append(CutLink(chance.randrange(expected.steps * 2), (one, other)))
    observed = play(network, technique(), *failures, seed=seed, given=given)
    assert verdict(network, expected, observed, given) is Recovery.PRECISE, (network, failures)


@pytest.mark.parametrize("technique", _TECHNIQUES)
@pytest.mark.parametrize("seed", seeds(20))
def test_standby_survives_several_failures_or_says_that_a_unit_is_lost(
    technique: Callable[[], Technique], seed: int
) -> None:
    """Nothing is lost silently: the rows are those of a run without a failure, or the query stops."""
    chance = random.Random(seed)
    network, given = chance.choice(list(OperatorClass)), rows_seed(seed)
    expected = unharmed(network, technique, given)
    failures: list[Failure] = []
    for _ in range(chance.randint(2, 4)):
        step, node = chance.randrange(expected.steps * 3), chance.choice(_NODES)
        if chance.random() < 0.5:
            failures.append(Kill(step, node, back_after_s=chance.uniform(0.01, 2)))
        else:
            failures.append(Hang(step, node, for_s=chance.uniform(0.01, 3)))
    observed: Outcome | None = None
    why = ""
    try:
        observed = play(network, technique(), *failures, seed=seed, given=given)
    except QueryFailed as stopped:
        why = stopped.message
    if observed is None:
        assert re.search("has lost its primary and its standby|is lost: its primary died", why), (why, failures)
    else:
        assert verdict(network, expected, observed, given) is Recovery.PRECISE, (network, failures)


@pytest.mark.parametrize("network", OperatorClass, ids=str)
@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_second_failure_is_survived_once_a_new_standby_has_a_copy(
    technique: Callable[[], Technique], network: OperatorClass
) -> None:
    """The primary dies, and its standby takes over and gets a new standby. Then the new primary dies."""
    sample = sample_of(network)
    batches = often(20, 60)
    rows = sample.rows(1, batches=batches)

    def run(*failures: Failure) -> Outcome:
        how = {"seed": 1, "failures": failures, "times": VirtualTimes(rows_every_s=3.0 / batches)}
        return SeededRun(sample.network, technique(), rows, **how).run()  # type: ignore[arg-type]

    expected = run()
    (first,) = [node for unit, node in expected.primaries if unit == sample.unit]
    once = run(Kill(100, first, back_after_s=0.5))
    second = next(node for unit, node in sorted(once.primaries) if unit == sample.unit and node != first)
    recoveries = []
    for step in range(expected.steps // 2, expected.steps, expected.steps // often(4, 8)):
        twice = run(Kill(100, first, back_after_s=0.5), Kill(step, second, back_after_s=0.5))
        union = network is OperatorClass.ARBITRARY
        assert len(twice.rows("out")) == len(expected.rows("out"))
        recoveries.append(twice.recoveries)
        if union:
            assert [row[0] for row in twice.rows("out")] == [
                f"row {at + 1}" for at in range(len(twice.rows("out")))
            ]
        else:
            assert twice.rows("out") == expected.rows("out"), step
    assert max(recoveries) > 1, "the unit has recovered twice"


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_unit_whose_pair_is_dead_stops_the_query_with_its_name(technique: Callable[[], Technique]) -> None:
    failures = [Kill(60, node) for node in _NODES]
    with pytest.raises(QueryFailed, match=r"unit '(first|second)' has lost its primary and its standby"):
        play(OperatorClass.REPEATABLE, technique(), *failures)


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_node_that_hung_is_fenced_when_its_standby_has_taken_over(
    technique: Callable[[], Technique],
) -> None:
    for network in (OperatorClass.CONVERGENT_CAPABLE, OperatorClass.ARBITRARY):
        expected = unharmed(network, technique)
        for step in steps(expected.steps, every=32, begin=20):
            observed = play(network, technique(), Hang(step, _NODES[step % 3], for_s=1.2))
            assert verdict(network, expected, observed) is Recovery.PRECISE, step


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_pair_wants_two_nodes(technique: Callable[[], Technique]) -> None:
    with pytest.raises(InvalidQuery, match="a second node for each unit, and there is 1: give the host 2 or more"):
        play(OperatorClass.REPEATABLE, technique(), nodes=1)


@pytest.mark.parametrize("technique", _TECHNIQUES)
@pytest.mark.parametrize("dead", ["standby", "nobody"])
def test_memory_is_bounded_with_a_slow_consumer(technique: Callable[[], Technique], dead: str) -> None:
    """One of the two nodes may be dead for good; the other continues with bounded memory."""
    sample = sample_of(OperatorClass.REPEATABLE)
    rows = sample.rows(1, batches=80)
    batch = max(batch.nbytes for batch in rows["in"])
    bounds = Bounds(credit_bytes=4 * batch, buffer_bytes_max=10 * batch, page_bytes=8192)
    failures = {"standby": [Kill(200, "node-2")], "nobody": []}[dead]
    # Cut the sink's link, so that it stands still like a slow consumer.
    failures += [CutLink(150, ("node-1", "edge"))]
    how = {"seed": 1, "bounds": bounds, "times": VirtualTimes(rows_every_s=0.01), "nodes": 2, "failures": failures}
    observed = SeededRun(sample.network, technique(), rows, **how).run()  # type: ignore[arg-type]
    assert len(observed.rows("out")) == sum(batch.num_rows for batch in rows["in"])
    assert 0 < observed.held_bytes_max < bounds.buffer_bytes_max + 2 * batch
    assert observed.queued_bytes_max < bounds.credit_bytes + 2 * batch
    # The pages of two units, and older pages to which a copy refers.
    assert observed.copied_bytes_max < 4 * observed.state_bytes_max


# -- determinants ---------------------------------------------------------------------------------------------


def chance_and_timeouts() -> Query:
    """Use a random function, and windows closed by the clock, so that the output cannot be predicted."""
    query = Query("first")

    def drawn(rows: pa.RecordBatch, state: MutableMapping[str, int], chance: random.Random) -> pa.RecordBatch:
        kept = rows.filter(pa.array([chance.random() < 0.5 for _ in range(rows.num_rows)]))
        before = state.get("rows", 0)
        state["rows"] = before + kept.num_rows
        ranks = [f"row {before + at + 1}" for at in range(kept.num_rows)]
        return kept.set_column(0, "key", pa.array(ranks, pa.string()))

    stream = query.source("in", SCHEMA, time="at").process(drawn, deterministic=False)
    stream.sink("drawn")
    windows = stream.unit("second").window("4s", timeout="100ms")
    windows.aggregate(F.count(), F.min("value")).sink("out")
    return query


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_what_chance_and_time_did_is_done_again(technique: Callable[[], Technique]) -> None:
    """Random rows are drawn once, in order, and each window is output once.

    If a standby drew new random values, it would repeat rows or ranks. If it closed windows at other times, it
    would output windows twice.
    """
    network = chance_and_timeouts().network()
    given = repeatable_rows(12)

    def run(*failures: Failure) -> Outcome:
        times = VirtualTimes(rows_every_s=0.08)
        return SeededRun(network, technique(), given, seed=3, failures=failures, times=times).run()

    expected = run()
    assert 10 < len(expected.rows("drawn")) < 40
    for step in steps(expected.steps, every=26):
        observed = run(Kill(step, _NODES[step % 3]))
        drawn, windows = observed.rows("drawn"), observed.rows("out")
        assert [row[0] for row in drawn] == [f"row {at + 1}" for at in range(len(drawn))], step
        values = [row[2] for row in drawn]
        assert values == sorted(set(values)), step
        begins = [row[0] for row in windows]
        assert begins == sorted(set(begins)), step
        assert sum(row[2] for row in windows) <= len(drawn), step


def repeatable_rows(batches: int) -> dict[str, list[pa.RecordBatch]]:
    return sample_of(OperatorClass.REPEATABLE).rows(1, batches=batches)
