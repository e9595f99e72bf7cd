"""Peer rings under seeds: every set of nodes dies at once, at any step, also while the ring changes.

Unless r + 1 neighbours are among the dead, every tuple counts once (or at least once, if that is configured).
Otherwise the loss is reported. By default some sets on rings of four to six nodes are played; PEACEFS_SEEDS=n
plays all, each at n steps.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.dataflows.dict_table import DictTable, places_of
from benchmarks.dataflows.failures import CutLink, Hang, Kill
from benchmarks.dataflows.seeded_ring import (
    Join,
    KillSet,
    LeaveAt,
    Move,
    RingEvent,
    RingFunctions,
    RingOutcome,
    SeededRing,
)
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.ring import (
    checkpointing,
    fragment,
    fragment_places,
    mapper,
    monitor,
    transitions,
    tuple_backup,
    view,
)
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.effects import SendTo
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.messages import EDGE, CopyWanted, PeerCheckpoint
from peacefs.dataflow.ring.reducer import ReducerCore
from peacefs.dataflow.ring.tokens import RING, Interval
from peacefs.dataflow.ring.view import RingView
from tests.simulation.seeds import seeds
from tests.support.long_runs import often
from tests.support.ring_runs import BALANCES, batches_of, count, counted, delivered, expected, hashed, ring_of

Case = tuple[int, int, tuple[str, ...]]


def _sets(sizes: Iterable[int], copies: Iterable[int], *, more: int = 0) -> Iterator[Case]:
    """Yield every set of nodes that may die, except all of them, for rings of these sizes."""
    for nodes in sizes:
        names = [f"node-{number}" for number in range(1, nodes + 1 + more)]
        for r in copies:
            for size in range(1, nodes) if nodes > r else ():
                for dead in itertools.combinations(names, size):
                    yield nodes, r, dead


def _some(cases: Iterator[Case], every: int) -> list[Case]:
    """Return some cases, with more of the small rings; return all if PEACEFS_SEEDS is set."""
    if "PEACEFS_SEEDS" in os.environ:
        return list(cases)
    every, of_small = often(2 * every, every), often(2, 1)
    return [case for at, case in enumerate(cases) if at % (of_small if case[0] < 4 else every) == 0]


def _neighbours_died(ring: list[str], dead: Iterable[str], r: int) -> bool:
    dead = set(dead)
    return any(all(ring[(at + k) % len(ring)] in dead for k in range(r + 1)) for at in range(len(ring)))


def _as_all_know(ring: SeededRing, r: int) -> RingView:
    """Return the ring as known from all nodes together."""
    return RingView(r, [member for core in ring.cores.values() for member in core.view_members])


def _play(ring: SeededRing, batches: Any, *, may_lose: bool = False, once: bool = True) -> RingOutcome:
    """Play a run, and check that every tuple counted or the loss was reported."""
    outcome = ring.run()
    complete = not expected(batches) - delivered(outcome) and not expected(batches) - counted(ring)
    assert complete or outcome.losses, "tuples are lost, and nobody said so"
    if not may_lose:
        assert not outcome.losses
    if once and not outcome.losses:
        assert delivered(outcome) == expected(batches)
        assert counted(ring) == expected(batches)
    return outcome


def _fail_once(seed: int, nodes: int, r: int, dead: tuple[str, ...], **options: Any) -> RingOutcome:
    chance = random.Random(f"{seed} {nodes} {r} {dead}")
    batches = batches_of(chance.randrange(1000))
    events = [KillSet(chance.randrange(5, 120 * nodes), dead)]
    ring = ring_of(chance.randrange(1 << 30), batches, nodes=nodes, r=r, events=events, **options)
    may_lose = _neighbours_died(list(ring.edge.view.ring), dead, r)
    return _play(ring, batches, may_lose=may_lose, once=options.get("exactly_once", True))


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(
    ("nodes", "r"), [(2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (3, 2), (4, 2), (5, 2), (6, 2), (6, 3)]
)
def test_ring_counts_each_tuple_once_whichever_set_of_nodes_dies(seed: int, nodes: int, r: int) -> None:
    replayed = 0
    for case in _some(_sets([nodes], [r]), 4):
        replayed += _fail_once(seed, *case).replayed_rows
    assert replayed, "no failure came to anything"


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("nodes", "r"), [(3, 1), (4, 1), (4, 2), (5, 2)])
def test_ring_counts_each_tuple_at_least_once_as_in_the_paper(seed: int, nodes: int, r: int) -> None:
    for case in _some(_sets([nodes], [r]), 4):
        _fail_once(seed, *case, exactly_once=False)


def test_ring_at_least_once_counts_some_tuples_twice() -> None:
    """Check the option for exactly once: without it, replays do count tuples twice."""
    twice = 0
    for seed in range(1, 6):
        batches = batches_of(seed)
        ring = ring_of(seed, batches, nodes=3, events=[KillSet(300, ("node-2",))], exactly_once=False)
        twice += (delivered(ring.run()) - expected(batches)).total()
    assert twice


def _change(chance: random.Random, kind: str, nodes: int, step: int) -> RingEvent:
    one = f"node-{chance.randrange(1, nodes + 1)}"
    match kind:
        case "move":
            return Move(step, one)
        case "join":
            return Join(step, f"node-{nodes + 1}", one)
        case _:
            return LeaveAt(step, one)


def _fail_during_change(seed: int, kind: str, nodes: int, r: int, dead: tuple[str, ...]) -> bool:
    """Let nodes die while the ring changes once or twice. Return True if they died during a change."""
    chance = random.Random(f"{seed} {kind} {nodes} {r} {dead}")
    batches = batches_of(chance.randrange(1000), batches=20)
    step = chance.randrange(5, 200)
    events = [_change(chance, kind, nodes, step)]
    if chance.random() < 0.3:
        events.append(
            _change(chance, chance.choice(["move", "join", "leave"]), nodes, step + chance.randrange(100))
        )
    ring = ring_of(chance.randrange(1 << 30), batches, nodes=nodes, spares=1, r=r, events=events)
    died_at = step + chance.randrange(250)
    found: list[RingView] = []

    def until() -> bool:
        if not found and ring.outcome.steps >= died_at:
            found.append(_as_all_know(ring, r))
            ring.happen(KillSet(0, dead))
        return False

    outcome = ring.run(until=until)
    # A node that does not know yet which nodes are dead may still finish a change.
    may_lose = not found or any(
        set(dead).issuperset(arc.now) or set(dead).issuperset(arc.next) for arc in found[0].arcs
    )
    complete = not expected(batches) - delivered(outcome) and not expected(batches) - counted(ring)
    assert complete or outcome.losses
    if not may_lose:
        assert not outcome.losses, outcome.losses
        assert delivered(outcome) == expected(batches)
        assert counted(ring) == expected(batches)
    return bool(found) and any(member.in_transition for member in found[0].members.values())


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("kind", ["move", "join", "leave"])
@pytest.mark.parametrize(("nodes", "r"), [(2, 1), (3, 1), (4, 1), (3, 2), (4, 2)])
def test_ring_counts_each_tuple_once_when_nodes_die_while_it_changes(
    seed: int, kind: str, nodes: int, r: int
) -> None:
    for case in _some(_sets([nodes], [r], more=1), 4):
        _fail_during_change(seed, kind, *case)


def test_ring_is_hit_in_the_middle_of_its_changes() -> None:
    """Check the previous test: many of its failures happen while a node moves, joins or leaves."""
    hit = [_fail_during_change(9, kind, 4, 1, ("node-2",)) for kind in ("move", "join", "leave") for _ in range(1)]
    hit += [_fail_during_change(seed, "move", 4, 2, ("node-3",)) for seed in range(6)]
    assert sum(hit) > 1


def test_ring_whose_last_node_leaves_while_the_others_die_is_lost_and_says_so() -> None:
    """There is a spare, but no node that could tell it to take over or report the loss."""
    _fail_during_change(3, "leave", 4, 2, ("node-1", "node-2", "node-4"))


def test_ring_holder_that_is_ready_for_a_change_stays_so_while_another_change_is_given_up() -> None:
    """A spare's join is cancelled for a move: the new holder keeps the fragments that it announced."""
    _fail_during_change(12, "move", 4, 1, ("node-1",))


@pytest.mark.parametrize("kind", ["move", "join", "leave"])
def test_ring_changes_while_it_runs(kind: str) -> None:
    batches = batches_of(3, batches=20)
    chance = random.Random(5)
    ring = ring_of(3, batches, nodes=4, spares=1, r=1, events=[_change(chance, kind, 4, 100)])
    before = {name: member.token for name, member in ring.edge.view.members.items()}
    _play(ring, batches)
    members = ring.edge.view.members
    if kind == "leave":
        assert len(ring.edge.view.ring) == 3
    else:
        assert len(ring.edge.view.ring) == (5 if kind == "join" else 4)
        assert [name for name, member in members.items() if member.token != before[name]]


@pytest.mark.parametrize("seed", seeds(2))
def test_ring_changes_while_no_rows_come(seed: int) -> None:
    """A node joins between two batches without waiting for the next one."""
    batches = batches_of(seed, batches=3)
    ring = ring_of(seed, batches, nodes=3, spares=1, batch_every_s=20.0)
    invited_s = joined_s = 0.0

    def until() -> bool:
        nonlocal invited_s, joined_s
        if not invited_s and all(core.number == 1 for core in ring.edge.mappers.values()):
            invited_s = ring.now_s
            ring.happen(Join(0, "node-4", "node-1"))
        if invited_s and not joined_s and len(ring.edge.view.ring) == 4:
            joined_s = ring.now_s
        return False

    outcome = ring.run(until_s=200.0, until=until)
    assert delivered(outcome) == expected(batches)
    assert 0 < joined_s - invited_s < 2.0


def test_ring_does_not_take_those_for_dead_that_need_not_speak_to_who_joins() -> None:
    """Sending the state takes longer than a node may be silent. Only ring members exchange heartbeats."""
    batches = batches_of(2, batches=60)
    events = [Join(100, "node-5", "node-2")]
    ring = ring_of(2, batches, nodes=4, spares=1, events=events, serialise_s=2.0)
    outcome = _play(ring, batches)
    assert not outcome.refused
    assert len(ring.edge.view.ring) == 5


@pytest.mark.parametrize("seed", seeds(4))
def test_ring_outlives_a_long_series_of_mishaps(seed: int) -> None:
    """Deaths, hangs, cut links, changes and returning nodes, one by one, with time for repair in between."""
    chance = random.Random(seed)
    nodes, r = chance.randrange(4, 7), chance.randrange(1, 3)
    names = [f"node-{number}" for number in range(1, nodes + 3)]
    batches = batches_of(seed, batches=110, rows=6)
    events: list[RingEvent] = []
    step = 100
    for _ in range(4):
        step += chance.randrange(900, 1400) * nodes // 4
        one, other = chance.sample(names, 2)
        mishaps: list[RingEvent] = [
            KillSet(step, (one,)),
            Kill(step, one, back_after_s=0.7),
            Hang(step, one, for_s=chance.choice([0.1, 0.3, 0.6, 1.5])),
            CutLink(step, (one, chance.choice([EDGE, other]))),
            Move(step, one),
            Join(step, names[-1], one),
            LeaveAt(step, one),
        ]
        events.append(chance.choice(mishaps))
    ring = ring_of(seed, batches, nodes=nodes, spares=2, r=r, events=events)
    outcome = ring.run(until_s=120.0)
    assert not outcome.losses
    assert delivered(outcome) == expected(batches)


def _fail_after_a_cut(seed: int) -> None:
    """Break a link, so that data in transit is lost. Right after that, the owner dies."""
    chance = random.Random(seed)
    batches = batches_of(seed, batches=40, rows=20, words=400)
    step = chance.randrange(100, 700)
    cut = CutLink(step, (chance.choice([EDGE, "node-1"]), "node-2"))
    events = [cut, KillSet(step + chance.choice([10, 50, 200, 400]), ("node-1",))]
    ring = ring_of(seed, batches, nodes=4, events=events, batch_every_s=0.02, latency_s=0.06)
    _play(ring, batches)


@pytest.mark.parametrize("seed", seeds(3))
def test_ring_makes_up_for_a_broken_link_before_a_failure(seed: int) -> None:
    for each in range(often(2, 4)):
        _fail_after_a_cut(seed * 1000 + each)


def test_checkpoint_whose_base_is_missing_is_not_taken_but_asked_for() -> None:
    """A holder that missed a checkpoint lacks the keys that changed in it, so it asks for a full copy."""
    interval = Interval(0, RING // 2)
    members = arrange(["node-1", "node-2"], 1)
    core = ReducerCore(0.0, "node-2", members, ["mapper-1"], count, DictTable, RingSettings(r=1))
    owners = DictTable()
    for word in (1, 2, 3):
        owners.put(word, 7)
    owners.cut()
    later = PeerCheckpoint(interval, 2, {"mapper-1": 5}, {"mapper-1": 9}, 0, (), owners.changes())
    effects = core.received(0.1, "node-1", later)
    assert [effect.message for effect in effects if isinstance(effect, SendTo)] == [CopyWanted(interval)]
    (held,) = [each for each in core.fragments() if each.interval == interval]
    assert (held.coverage, held.table.known_keys) == ({}, 0)
    core.received(0.2, "node-1", replace(later, base=None, entries=owners.everything()))
    assert held.coverage == {"mapper-1": 9}
    assert held.table.known_keys > 0


# -- refusals and reports -------------------------------------------------------------------------------


def test_ring_says_what_is_lost_when_neighbours_die_at_once() -> None:
    batches = batches_of(1)
    ring = ring_of(1, batches, nodes=4, events=[KillSet(400, ("node-2", "node-3"))])
    outcome = _play(ring, batches, may_lose=True)
    assert any("25.0% of the ring is lost" in reason and "raise r" in reason for reason in outcome.losses)


def test_ring_says_that_it_has_become_too_small_for_r() -> None:
    """Two of four nodes die and r is 2, so there is no node for the third copy."""
    batches = batches_of(1, batches=30)
    outcome = _play(ring_of(1, batches, nodes=4, r=2, events=[KillSet(300, ("node-1", "node-3"))]), batches)
    assert "the ring has 2 of the 3 nodes that r=2 needs" in " ".join(outcome.said)
    assert sum("that r=2 needs" in said for said in outcome.said) == 1
    outcome = _play(ring_of(1, batches, nodes=4, r=2, events=[KillSet(300, ("node-1",))]), batches)
    assert not any("that r=2 needs" in said for said in outcome.said)


def test_ring_takes_spares_in_place_of_nodes_that_die() -> None:
    """All original nodes die, one after another. In the end spares have replaced them, with all data."""
    batches = batches_of(6, batches=110, rows=6)
    events = [KillSet(400 + at * 1100, (f"node-{at + 1}",)) for at in range(3)]
    ring = ring_of(6, batches, nodes=3, spares=3, events=events)
    outcome = _play(ring, batches)
    assert len(outcome.killed_s) == 3
    assert sorted(ring.edge.view.ring) == ["node-4", "node-5", "node-6"]


@pytest.mark.parametrize("seed", seeds(3))
def test_ring_gives_two_nodes_that_join_with_one_token_each_its_own(seed: int) -> None:
    """Both are invited to the middle of the same interval at once."""
    batches = batches_of(seed, batches=40)
    events = [Join(100, "node-4", "node-1"), Join(100, "node-5", "node-1")]
    ring = ring_of(seed, batches, nodes=3, spares=2, events=events)
    _play(ring, batches)
    tokens = [member.token for member in ring.edge.view.members.values() if member.on_ring]
    assert len(set(tokens)) == len(tokens) >= 4


def test_ring_refuses_a_node_that_returns_with_its_old_token() -> None:
    batches = batches_of(2, batches=40)
    ring = ring_of(2, batches, nodes=4, events=[Kill(200, "node-2", back_after_s=0.8)])
    outcome = _play(ring, batches)
    assert outcome.refused == ["node-2"]
    assert "node 'node-2' has no place any more: another has taken its token over" in outcome.said


def test_ring_refuses_a_node_that_hung_until_another_took_over() -> None:
    batches = batches_of(2, batches=40)
    ring = ring_of(2, batches, nodes=4, events=[Hang(200, "node-2", for_s=1.0)])
    outcome = ring.run()
    assert outcome.refused == ["node-2"]
    assert delivered(outcome) == expected(batches)


def test_ring_takes_nobody_for_dead_whom_a_busy_node_could_not_hear() -> None:
    """A connection breaks, and the node that would take over hangs for longer than a suspect may be silent."""
    batches = batches_of(2, batches=40)
    for step in range(200, 400, often(50, 25)):
        paused = [CutLink(step, ("node-1", "node-2")), Hang(step, "node-2", for_s=0.45)]
        settings = RingSettings(r=1, checkpoint_s=0.2, silence_s=1.0, suspect_s=0.3, balances=False)
        outcome = SeededRing(
            settings, batches, RingFunctions(count, DictTable), seed=2, nodes=4, events=paused
        ).run()
        assert outcome.refused == [], step
        assert delivered(outcome) == expected(batches)


def test_ring_keeps_tuples_of_a_mapper_whose_clock_is_behind_and_says_so() -> None:
    """By the mapper's clock, these tuples would be evicted before the owner has processed them."""
    told = 0
    for seed in range(1, 4):
        batches = batches_of(seed, batches=30)
        settings = RingSettings(
            r=1,
            exactly_once=False,
            checkpoint_s=0.1,
            silence_s=0.4,
            suspect_s=0.1,
            balances=False,
            latency_s=0.001,
        )
        ring = ring_of(
            seed,
            batches,
            nodes=3,
            settings=settings,
            events=[KillSet(500, ("node-1",))],
            clock_skew_s={"mapper-1": -5.0},
            row_s=0.004,
            latency_s=0.02,
        )
        outcome = ring.run()
        assert not expected(batches) - delivered(outcome)
        assert not expected(batches) - counted(ring)
        told += any("the clock of mapper 'mapper-1' is behind" in said for said in outcome.said)
    assert told


# -- automatic balancing --------------------------------------------------------------------------------


def _hot_batches(share: float) -> dict[str, list[HashedRows]]:
    """Return batches with this share of their rows in the first node's interval."""
    chance = random.Random(4)
    words = list(range(200))
    hot = [word for word, place in zip(words, places_of(words), strict=True) if place < RING // 3]
    return {
        "mapper-1": [
            hashed([chance.choice(hot if chance.random() < share else words) for _ in range(60)])
            for _ in range(60)
        ]
    }


def test_balancing_moves_a_token_towards_the_overloaded_node() -> None:
    batches = _hot_batches(0.9)
    ring = ring_of(4, batches, nodes=3, settings=BALANCES, row_s=0.001)
    before = {name: member.token for name, member in ring.edge.view.members.items()}
    _play(ring, batches)
    moved = [name for name, member in ring.edge.view.members.items() if member.token != before[name]]
    assert "node-2" in moved


def test_scaling_out_takes_a_spare_when_nobody_has_room() -> None:
    batches = _hot_batches(0.9)
    settings = replace(BALANCES, busy_low=-1.0)
    ring = ring_of(4, batches, nodes=3, spares=1, settings=settings, row_s=0.001)
    _play(ring, batches)
    assert len(ring.edge.view.ring) == 4


def test_scaling_out_without_a_spare_says_so() -> None:
    batches = _hot_batches(0.9)
    settings = replace(BALANCES, busy_low=-1.0)
    outcome = _play(ring_of(4, batches, nodes=3, settings=settings, row_s=0.001), batches)
    assert any("there is no spare: start more nodes" in said for said in outcome.said)


def test_scaling_in_lets_nodes_leave_that_have_little_to_do() -> None:
    batches = batches_of(4, batches=40, rows=3)
    settings = replace(BALANCES, balances=False, shrinks=True)
    ring = ring_of(4, batches, nodes=5, settings=settings)
    outcome = _play(ring, batches)
    assert len(ring.edge.view.ring) == 2
    assert "node 'node-1' has left the ring" in outcome.said or outcome.refused


# -- mutants --------------------------------------------------------------------------------------------


def _evict_all(self: tuple_backup.TupleBackup, coverage: object) -> None:
    self.clear()


def _begin_without_replay(self: fragment_places.FragmentPlaces, held: fragment.Fragment) -> None:
    held.backup.clear()
    _BEGIN(self, held)


def _forget_coverage(self: checkpointing.Checkpointing, held: Any, checkpoint: Any) -> bool:
    taken = _TAKE(self, held, checkpoint)
    held.coverage = {}
    return taken


def _release_all(self: mapper.MapperCore) -> None:
    for feed in [feed for feeds in self._feeds.values() for feed in feeds]:
        feed.held = feed.told
    _RELEASE(self)


def _finish_at_once(self: transitions.Transitions, arc: view.Arc) -> bool:
    return True


def _find_nobody(self: monitor.Monitor, now_s: float) -> list[str]:
    return []


_BEGIN = fragment_places.FragmentPlaces._begin
_TAKE = checkpointing.Checkpointing._take
_RELEASE = mapper.MapperCore._release

_MUTANTS: dict[str, tuple[type, str, Any]] = {
    "backups are evicted whatever the checkpoint contains": (
        tuple_backup.TupleBackup,
        "evict_covered",
        _evict_all,
    ),
    "whoever takes over does not replay": (fragment_places.FragmentPlaces, "_begin", _begin_without_replay),
    "fragments do not remember what they contain": (checkpointing.Checkpointing, "_take", _forget_coverage),
    "mappers forget what they have sent": (mapper.MapperCore, "_release", _release_all),
    "a change is done before others have what they need": (transitions.Transitions, "_has_all", _finish_at_once),
    "nobody takes over": (monitor.Monitor, "find_dead", _find_nobody),
}


def _play_many() -> None:
    for seed in range(1, 8):
        for dead in (("node-2",), ("node-1", "node-3")):
            _fail_once(seed, 4, 1, dead)
            _fail_during_change(seed, "move", 4, 1, dead)
            _fail_during_change(seed, "join", 4, 1, dead)
        for each in range(8):
            _fail_after_a_cut(seed * 1000 + each)


@pytest.mark.parametrize("name", _MUTANTS)
def test_ring_without_one_of_its_mechanisms_loses_or_repeats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*_MUTANTS[name])
    with pytest.raises((AssertionError, TimeoutError)):
        _play_many()
