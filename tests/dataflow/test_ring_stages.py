"""Peer rings with two keyed functions in a row: words are counted, and then their classes.

Both functions share the ring. Nodes die, move, join and leave with the state of both, and every word counts once
in each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.dataflows.dict_table import DictTable, places_of
from benchmarks.dataflows.seeded_ring import Join, KillSet, LeaveAt, Move, RingEvent, RingOutcome, SeededRing
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.ring.edge import RingRelay
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.keyed_table import KeyedTable
from peacefs.dataflow.ring.stage_tables import StageTables
from peacefs.dataflow.ring.tokens import RING
from tests.simulation.seeds import seeds
from tests.support.long_runs import often
from tests.support.ring_runs import BALANCES, batches_of, count, delivered, expected, hashed, ring_of

Batches = dict[str, list[HashedRows]]
_CLASSES = 11
_CLASS = "classes"


def _classes(words: Counter[int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for word, number in words.items():
        found[word % _CLASSES] += number
    return found


def _count_both(mapper: str, table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
    assert isinstance(table, StageTables)
    return count(mapper, table.of(1 if mapper == _CLASS else 0), rows)


def _by_class(rows: pa.RecordBatch) -> HashedRows:
    return hashed([word % _CLASSES for word in rows.column("word").to_pylist()])


def _ring_of(seed: int, batches: Batches, **options: Any) -> SeededRing:
    relays = {_CLASS: RingRelay(frozenset(batches), _by_class)}
    new_table = lambda: StageTables([DictTable(), DictTable()])  # noqa: E731
    return ring_of(seed, batches, reduce=_count_both, new_table=new_table, relays=relays, **options)


def _counted(ring: SeededRing, stage: int) -> Counter[int]:
    """Return a function's counts in the states of the intervals' owners. No key is in two states."""
    found: Counter[int] = Counter()
    for tables in ring.owners().values():
        for table in tables:
            assert isinstance(table, StageTables)
            part = table.of(stage)
            assert isinstance(part, DictTable)
            assert not found.keys() & part.items().keys(), "two nodes own the same key"
            found.update(part.items())
    return found


def _play(ring: SeededRing, batches: Batches, until: Callable[[], bool] | None = None) -> RingOutcome:
    outcome = ring.run(until=until)
    assert not outcome.losses
    words = expected(batches)
    assert _counted(ring, 0) == words
    assert _counted(ring, 1) == _classes(words) == delivered(outcome)
    return outcome


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(
    ("nodes", "r", "dead"),
    [(3, 1, ["node-2"]), (4, 1, ["node-1", "node-3"]), (5, 2, ["node-2", "node-3"]), (4, 3, ["node-1", "node-2"])],
)
def test_ring_stages_count_each_tuple_once_when_nodes_die(
    seed: int, nodes: int, r: int, dead: Sequence[str]
) -> None:
    replayed = 0
    for each in range(often(2, 3)):
        chance = random.Random(f"{seed} {each} {nodes} {r}")
        batches = batches_of(chance.randrange(1000))
        events = [KillSet(chance.randrange(20, 150 * nodes), tuple(dead))]
        ring = _ring_of(chance.randrange(1 << 30), batches, nodes=nodes, r=r, events=events)
        replayed += _play(ring, batches).replayed_rows
    assert replayed, "no failure came to anything"


def _change(kind: str, step: int) -> RingEvent:
    changes: dict[str, RingEvent] = {
        "move": Move(step, "node-2"),
        "join": Join(step, "node-5", "node-2"),
        "leave": LeaveAt(step, "node-2"),
    }
    return changes[kind]


def _die_during(kind: str, chance: random.Random) -> bool:
    """Let a node die after a change has begun. Return True if it died before the change was done."""
    batches = batches_of(chance.randrange(1000), batches=20)
    step = chance.randrange(20, 200)
    after, dies = step + chance.randrange(200), chance.choice(["node-1", "node-2", "node-3"])
    ring = _ring_of(chance.randrange(1 << 30), batches, nodes=4, spares=1, r=2, events=[_change(kind, step)])
    found: list[bool] = []

    def until() -> bool:
        if not found and ring.outcome.steps >= after:
            found.append(ring.in_transition)
            ring.happen(KillSet(0, (dies,)))
        return False

    _play(ring, batches, until)
    return any(found)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("kind", ["move", "join", "leave"])
def test_ring_stages_move_with_the_ring_and_outlive_a_death_meanwhile(seed: int, kind: str) -> None:
    chance = random.Random(f"{seed} {kind}")
    assert sum(_die_during(kind, chance) for _ in range(often(2, 4))), "nothing died during a change"


def _hot_batches(seed: int) -> Batches:
    """Return batches with most rows in the first node's interval."""
    chance = random.Random(seed)
    words = list(range(200))
    hot = [word for word, place in zip(words, places_of(words), strict=True) if place < RING // 3]
    return {
        "mapper-1": [
            hashed([chance.choice(hot if chance.random() < 0.9 else words) for _ in range(60)]) for _ in range(40)
        ]
    }


@pytest.mark.parametrize("seed", seeds(1))
def test_ring_stages_are_balanced_by_a_moved_token(seed: int) -> None:
    batches = _hot_batches(seed)
    ring = _ring_of(seed, batches, nodes=3, settings=BALANCES, row_s=0.001)
    before = {name: member.token for name, member in ring.edge.view.members.items()}
    _play(ring, batches)
    assert [name for name, member in ring.edge.view.members.items() if member.token != before[name]]


@pytest.mark.parametrize("seed", seeds(1))
def test_ring_stages_scale_out_and_in(seed: int) -> None:
    batches = _hot_batches(seed)
    settings = replace(BALANCES, busy_low=-1.0)
    ring = _ring_of(seed, batches, nodes=3, spares=1, settings=settings, row_s=0.001)
    _play(ring, batches)
    assert len(ring.edge.view.ring) == 4
    few = batches_of(seed, batches=40, rows=3)
    ring = _ring_of(seed, few, nodes=5, settings=replace(BALANCES, balances=False, shrinks=True))
    _play(ring, few)
    assert len(ring.edge.view.ring) < 5


def test_ring_stages_hold_back_the_source_while_the_second_is_full() -> None:
    """Nodes are slow, and few batches may wait. Batches from the first function count as well."""
    batches = batches_of(5, batches=30, rows=40)
    settings = RingSettings(
        r=1, checkpoint_s=0.15, silence_s=5.0, suspect_s=0.1, balances=False, mapper_bytes_max=2000
    )
    ring = _ring_of(5, batches, nodes=3, settings=settings, row_s=0.002)
    highest = 0

    def look() -> bool:
        nonlocal highest
        highest = max(highest, ring.edge.mappers[_CLASS].held_bytes)
        return False

    outcome = ring.run(until=look)
    assert delivered(outcome) == _classes(expected(batches))
    total = sum(rows.bytes for given in batches.values() for rows in given)
    assert highest < total / 3


def _fail_some() -> None:
    for seed in range(1, 5):
        batches = batches_of(seed, batches=25)
        _play(_ring_of(seed, batches, nodes=3, events=[KillSet(700, ("node-2",))]), batches)


def test_ring_stages_are_found_out_that_checkpoint_the_first_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_alone(self: StageTables) -> tuple[bytes, ...]:
        return tuple(bytes([0]) + entry for entry in self.of(0).changes())

    monkeypatch.setattr(StageTables, "changes", first_alone)
    with pytest.raises(AssertionError):
        _fail_some()
