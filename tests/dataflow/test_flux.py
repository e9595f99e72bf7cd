"""Flux: a pair of replicas for each partition of a stage, under seeds, with failures also during catch-up.

By default few steps are played; PEACEFS_STEPS=all plays each, PEACEFS_STEPS=9 every ninth. PEACEFS_SEEDS=n plays n
seeds.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, MutableMapping
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import SAMPLES, SCHEMA, input_rows, passed
from support.long_runs import often
from support.steps import steps, stride

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import CutLink, Failure, Hang, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.controller import ControllerCore
from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.core.messages import NodeHeartbeat, StandbyInStep, UnitPlacement
from peacefs.dataflow.core.pair_plan import PairPlan
from peacefs.dataflow.core.pair_reading import PairReading
from peacefs.dataflow.core.query_recovery import RecoveryPlan
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.operators.grains import Grains
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Replicas
from peacefs.dataflow.techniques.admission import admit
from peacefs.dataflow.techniques.flux import Flux
from peacefs.protocol.errors import InvalidQuery, PeacefsError, QueryFailed

_NODES = ("node-1", "node-2", "node-3", "node-4")
_EVERY_STEP = stride(240)
#: Buffers for a few rows, so that one slow replica holds up all others.
_SMALL = Bounds(credit_bytes=400, buffer_bytes_max=1000)


@cache
def network() -> Network:
    """Return two stages of windows: each part of the first stage feeds both parts of the second."""
    query = Query("clicks")
    clicks = passed(query.source("in", SCHEMA, time="at"))
    first = clicks.partition("key", parts=2, name="first", grain_rows=5, grain="10s").key_by("key")
    counts = first.window("4s", every="2s").aggregate(F.count(), F.sum("value"))
    passed(counts.partition("count", parts=2, name="second")).sink("out")
    return query.network()


def play(*failures: Failure, seed: int = 1, standby_nodes: int = 1, small: bool = False, **how: Any) -> Outcome:
    rows = {"in": input_rows(1, batches=28, size=2)}
    technique = Flux(standby_nodes=standby_nodes, interval_s=0.1)
    how |= {"bounds": _SMALL} if small else {}
    given = {"nodes": 4, "times": VirtualTimes(rows_every_s=0.08), **how}
    return SeededRun(network(), technique, rows, seed=seed, failures=failures, **given).run()


@cache
def expected() -> Outcome:
    return play()


def verdict(observed: Outcome) -> Recovery:
    """Compare with the run without failures; a row's subject is its key and window."""
    return compare_outputs(expected().rows("out"), observed.rows("out"), subject=lambda row: (row[0], row[1]))


def test_flux_loses_and_repeats_nothing_whatever_node_dies_and_when() -> None:
    """A node dies before a step. It comes back empty as a standby node, on which the lost halves catch up."""
    assert Flux().promises(network().operator_class) is Recovery.PRECISE
    caught_up = 0
    for at, step in enumerate(range(30, expected().steps, _EVERY_STEP)):
        node = _NODES[at % len(_NODES)]
        observed = play(Kill(step, node, back_after_s=0.3), small=at % 3 == 0)
        assert verdict(observed) is Recovery.PRECISE, f"{node} killed before step {step}"
        caught_up += len(observed.caught_up)
    assert caught_up > 0


#: In a chain of four nodes, part 0 of the first stage is on nodes 1 and 2. It feeds parts 2 and 3 of the second
#: stage, which are on nodes 3 and 4 and on nodes 4 and 1.
_SURVIVALS = {
    "the consumer's secondary fails": ["node-4"],
    "the producer's secondary fails": ["node-2"],
    "both secondaries fail, or the consumer's primary and the producer's secondary": ["node-4", "node-2"],
    "the same, the producer's first": ["node-2", "node-4"],
}


@pytest.mark.parametrize("lost", _SURVIVALS.values(), ids=_SURVIVALS.keys())
def test_flux_takes_over_in_all_cases_that_a_quartet_can_survive(lost: list[str]) -> None:
    """Flux 5.2: there is no catch-up, and the surviving halves of four parts in two stages finish the run."""
    whole = _quartets()
    places = {("first[0]", "node-1"), ("first[0]", "node-2"), ("second[2]", "node-3"), ("second[2]", "node-4")}
    assert places | {("second[3]", "node-4"), ("second[3]", "node-1")} <= whole.places
    for step in steps(whole.steps, every=whole.steps, begin=100, offset=whole.steps // 3):
        failures = [Kill(step + 40 * at, node) for at, node in enumerate(lost)]
        observed = _quartets(*failures)
        assert not observed.caught_up
        assert observed.rows("out") == whole.rows("out"), f"killed from step {step}"


@cache
def _quartets(*failures: Failure) -> Outcome:
    query = Query("clicks")
    stream = passed(query.source("in", SCHEMA, time="at"))
    stream = passed(stream.partition("value", parts=4, name="first", grain_rows=5))
    stream.partition("key", parts=4, name="second").process(_count).sink("out")
    rows = {"in": input_rows(1, batches=often(8, 14), size=2)}
    technique = Flux(catch_up_after_s=1000.0, interval_s=0.1)
    times = VirtualTimes(rows_every_s=0.12)
    return SeededRun(query.network(), technique, rows, seed=1, failures=failures, nodes=4, times=times).run()


def _count(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    """Give each key's rows numbers: a lost or repeated row changes all later ones."""
    numbers = []
    for key in rows.column("key").to_pylist():
        state[key] = state.get(key, 0) + 1
        numbers.append(state[key])
    return rows.set_column(2, "value", pa.array(numbers, pa.int64()))


def test_flux_catches_up_bottom_up_and_one_part_at_a_time() -> None:
    """The first stage is complete before the second begins. Rows keep coming out meanwhile."""
    observed = play(Kill(300, "node-3", back_after_s=0.2))
    levels = {unit: level for level, units in enumerate(network().levels) for unit in units}
    order = [levels[unit] for _, unit in observed.caught_up]
    assert order == sorted(order) and set(order) >= {1, 2}
    assert len({step for step, _ in observed.caught_up}) == len(observed.caught_up)
    assert verdict(observed) is Recovery.PRECISE


def test_flux_begins_a_catch_up_again_when_its_node_dies() -> None:
    """The standby node dies during the last catch-up and comes back: in the end all halves exist."""
    begun = play(Kill(300, "node-3"))
    first, last = begun.caught_up[0][0], begun.caught_up[-1][0]
    stride = max((last - first + 60) // often(2, 4), 1) if _EVERY_STEP > 20 else _EVERY_STEP
    again = 0
    for step in range(first - 60, last, stride):
        observed = play(Kill(300, "node-3"), Kill(step, "node-4", back_after_s=0.1))
        assert verdict(observed) is Recovery.PRECISE, f"standby killed before step {step}"
        again += {unit for _, unit in observed.caught_up} >= {unit for _, unit in begun.caught_up}
    assert again > 0


@pytest.mark.parametrize("seed", seeds(3))
def test_flux_is_precise_whatever_connection_breaks(seed: int) -> None:
    """One node dies or hangs, and comes back; connections break at any time."""
    chance = random.Random(seed)
    node, step = chance.choice(_NODES), chance.randrange(expected().steps)
    dies = Kill(step, node, back_after_s=chance.uniform(0.01, 1))
    failures: list[Failure] = [chance.choice([dies, Hang(step, node, for_s=chance.uniform(0.01, 3))])]
    for _ in range(chance.randint(1, 4)):
        one, other = chance.sample([*_NODES, "edge"], 2)
        failures.append(CutLink(chance.randrange(expected().steps * 2), (one, other)))
    observed = play(*failures, seed=seed, small=chance.random() < 0.3)
    assert verdict(observed) is Recovery.PRECISE, failures


@pytest.mark.parametrize("seed", seeds(3))
def test_flux_survives_several_failures_or_says_that_a_pair_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    failures: list[Failure] = []
    for _ in range(chance.randint(2, 4)):
        step, node = chance.randrange(expected().steps * 2), chance.choice(_NODES)
        dies = Kill(step, node, back_after_s=chance.uniform(0.01, 1))
        failures.append(chance.choice([dies, Hang(step, node, for_s=chance.uniform(0.01, 3))]))
    observed: Outcome | None = None
    why = ""
    try:
        observed = play(*failures, seed=seed)
    except QueryFailed as stopped:
        why = stopped.message
    if observed is None:
        assert re.search("has lost its primary and its standby|is lost: its primary died", why), (why, failures)
    else:
        assert verdict(observed) is Recovery.PRECISE, failures


def test_flux_does_not_listen_to_a_half_that_was_taken_for_dead() -> None:
    """The half hangs longer than the controller waits. It continues later, and is refused."""
    observed = play(Hang(400, "node-2", for_s=1.5))
    assert observed.caught_up, "it was replaced"
    assert verdict(observed) is Recovery.PRECISE


def test_flux_keeps_what_set_preserving_operators_make_in_any_order() -> None:
    """Each half produces the rows of a grain in its own order, and a node dies in between."""

    def shuffled(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
        order = list(range(rows.num_rows))
        chance.shuffle(order)
        return rows.take(pa.array(order))

    chance = random.Random(5)
    query = Query("clicks")
    stream = query.source("in", SCHEMA, time="at").partition("key", parts=2, name="first", grain_rows=8)
    stream = stream.process(shuffled, deterministic=False, unique="value")
    passed(stream.partition("value", parts=2, name="second")).sink("out")
    admit(query.network(), Flux(), Recovery.PRECISE)
    rows = {"in": input_rows(1, batches=28, size=2)}
    given: dict[str, Any] = {"seed": 1, "nodes": 4, "times": VirtualTimes(rows_every_s=0.08)}
    for step in (None, 250, 500):
        failures = [] if step is None else [Kill(step, "node-2", back_after_s=0.2)]
        run = SeededRun(query.network(), Flux(interval_s=0.1), rows, failures=failures, **given)
        values = [row[2] for row in run.run().rows("out")]
        assert sorted(values) == list(range(56)), "each row once"
        assert all(abs(value - place) < 16 for place, value in enumerate(values)), "and in its grain"


_REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Flux(standby_nodes=-1), "0 or more"),
    (lambda: Flux(interval_s=0), "above 0"),
    (lambda: Flux(catch_up_after_s=-1), "from 0 to"),
    (lambda: Flux().check_nodes(1), "leave 1: give the host 2 or more"),
    (lambda: Flux(standby_nodes=2).check_nodes(3), "leave 1: give the host 4 or more"),
    (lambda: admit(SAMPLES[OperatorClass.ARBITRARY]().network, Flux()), "cannot pair 'union-1'"),
]


@pytest.mark.parametrize(("wanted", "message"), _REFUSED, ids=[message for _, message in _REFUSED])
def test_flux_that_cannot_work_is_refused_in_a_line(wanted: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message) as refused:
        wanted()
    assert "\n" not in refused.value.message


def test_flux_places_pairs_in_a_chain_and_leaves_standby_nodes_alone() -> None:
    """A stage is rebuilt ten seconds after the loss, and the next stage ten seconds later, part by part."""
    plan = PairPlan({"a[0]": 0, "a[1]": 1, "a[2]": 2, "b": 0}, [["a[0]", "a[1]", "a[2]"], ["b"]], 1, wait_s=10.0)
    edge = {"source in": UnitPlacement("edge", 1)}
    units = ["a[0]", "a[1]", "a[2]", "b"]
    core = ControllerCore(
        units,
        edge,
        edge_node="edge",
        nodes_wanted=4,
        node_timeout_s=1e9,
        plan=RecoveryPlan(dict.fromkeys(units, Replicas.EQUALS), plan),
    )
    for node in ("n4", "n3", "n2", "n1"):
        core.heartbeat(0.0, NodeHeartbeat(node, "1", 0))

    def places(unit: str) -> tuple[str | None, str | None]:
        where = core.placement.units[unit]
        return where.node, None if where.standby is None else where.standby.node

    chain = {"a[0]": ("n1", "n2"), "a[1]": ("n2", "n3"), "a[2]": ("n3", "n1"), "b": ("n1", "n2")}
    assert {unit: places(unit) for unit in units} == chain
    core.node_lost("n1")
    assert (places("a[0]"), places("a[2]"), places("b")) == (("n2", None), ("n3", None), ("n2", None))
    begun: list[tuple[float, str]] = []
    for second in range(40):
        core.tick(float(second))
        for unit in units:
            where = core.placement.units[unit]
            standby = where.standby
            if standby is not None and not standby.fresh and not standby.in_step:
                begun.append((second, unit))
                assert where.node not in (None, standby.node) and standby.node in ("n3", "n4")
                assert where.node is not None
                told = core.standby_in_step(where.node, StandbyInStep(unit, standby.incarnation, 1))
                assert told and not core.standby_in_step(where.node, StandbyInStep(unit, standby.incarnation, 1))
    assert begun == [(10, "a[0]"), (11, "a[2]"), (20, "b")]


# -- protocol steps that are disabled --------------------------------------------------------------------------


def _tells_one_half(patch: pytest.MonkeyPatch) -> None:
    """Let consumers send no acknowledgements to the half that they do not read."""
    acknowledge = PairReading.acknowledge
    patch.setattr(
        PairReading,
        "acknowledge",
        lambda reading, where, ack, **how: (
            each for each in acknowledge(reading, where, ack, **how) if each.to == reading.node
        ),
    )


def _goes_on_with_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Keep the connections of consumers that were wrongly considered dead."""
    patch.setattr(HAOutput, "leave", lambda output, consumers: None)


def _pairs_on_one_node(patch: pytest.MonkeyPatch) -> None:
    homes = PairPlan.homes
    patch.setattr(PairPlan, "homes", lambda plan, unit, members: (homes(plan, unit, members) or ("", ""))[:1] * 2)


def _merges_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """Let a consumer take one producer's rows without waiting for the others."""
    patch.setattr(Grains, "settled", property(lambda grains: True))


#: Each step with a run that is precise if the step is enabled.
_MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], list[Failure]] = {
    _tells_one_half: [Hang(721, "node-4", for_s=1.5)],
    _goes_on_with_the_dead: [Hang(229, "node-3", for_s=1.5)],
    _pairs_on_one_node: [],
    _merges_what_is_there: [Hang(721, "node-4", for_s=1.5)],
}


@cache
def _whole(*failures: Failure) -> Outcome:
    return play(*failures, small=True)


@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_flux_without_a_piece_of_its_protocol_is_found_out(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that are precise with the step enabled must not be precise without it."""
    assert verdict(expected()) is Recovery.PRECISE
    failures = _MUTANTS[mutant]
    assert verdict(_whole(*failures)) is Recovery.PRECISE, "with it"
    mutant(monkeypatch)
    observed: Outcome | None = None
    with contextlib.suppress(AssertionError, PeacefsError):
        observed = play(*failures, small=True)
    assert observed is None or verdict(observed) is not Recovery.PRECISE
