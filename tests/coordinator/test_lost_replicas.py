"""Replicas lost with their datanode are removed in steps, with the same outcome as at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.play import Play, record, registration

from peacefs.coordinator.cluster.chunk_map import ChunkMap
from peacefs.coordinator.limits import lost_replicas_per_turn
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.messages import DeleteChunks, Replica, ReportChunks

NODES = ("a", "b", "c")
CHUNKS = range(1, 7)
MANY = 3 * lost_replicas_per_turn

_said_of_chunks = ["know", "forget", "hold", "hold", "hold", "drop", "spoil", "expect"]
_said_of_nodes = ["lose", "lose", "reported", *Mode]
_kinds = st.sampled_from([*_said_of_chunks, *_said_of_nodes, "take out"])
_steps = st.lists(st.tuples(_kinds, st.sampled_from(NODES), st.sampled_from(CHUNKS)), max_size=60)


def _apply(chunks: ChunkMap, what: str | Mode, node: str, chunk: int) -> int | None:
    """Return how many replicas were reported lost or are no longer awaited."""
    match what:
        case "know":
            chunks.add_chunk(record(chunk, replication=2))
        case "forget":
            chunks.forget(chunk)
        case "hold":
            chunks.add_replica(node, Replica(chunk, 1, 1000))
        case "drop":
            chunks.remove_replica(node, chunk)
        case "spoil":
            chunks.mark_corrupt(node, chunk)
        case "expect" if chunks.get(chunk) is not None:
            chunks.set_mode(node, Mode.MAINTENANCE)
            chunks.expect(node, chunk)
        case "lose":
            return chunks.remove_node(node)
        case "reported":
            return chunks.await_no_more(node)
        case Mode():
            return chunks.set_mode(node, what)
    return None


def _summary(chunks: ChunkMap) -> object:
    states = {
        chunk: (sorted(state.holders), sorted(state.corrupt), sorted(state.awaited))
        for chunk in CHUNKS
        if (state := chunks.get(chunk)) is not None
    }
    held = [(chunks.held_by(node), chunks.to_drain(node)) for node in NODES]
    return states, held, set(chunks.under), chunks.over, chunks.missing, chunks.unreferenced.counts(0)


@given(_steps)
def test_whatever_happens_meanwhile_the_end_is_that_of_losing_them_at_once(
    steps: list[tuple[str | Mode, str, int]],
) -> None:
    at_once, bit_by_bit = ChunkMap(), ChunkMap()
    for what, node, chunk in [("know", "a", chunk) for chunk in CHUNKS] + steps:
        counts = [_apply(chunks, what, node, chunk) for chunks in (at_once, bit_by_bit)]
        assert counts[0] == counts[1]
        at_once.remove_lost(1000)
        if what == "take out":
            bit_by_bit.remove_lost(1)
    assert not bit_by_bit.remove_lost(1000)
    assert _summary(bit_by_bit) == _summary(at_once)
    awaited = [at_once.await_no_more(node) for node in NODES]
    assert [bit_by_bit.await_no_more(node) for node in NODES] == awaited


def test_a_dead_datanode_with_many_chunks_is_gone_for_readers_at_once_and_for_repair_in_turns(play: Play) -> None:
    many = 3 * lost_replicas_per_turn
    play.join("dn-1", "dn-2", "dn-3")
    play.open_for_business()
    play.publish([record(number, replication=2, hint=("dn-1", "dn-2")) for number in range(many)])
    play.beating.remove("dn-1")
    under = []
    while len(under) < 4:
        play.let_pass(0.5)
        if play.cluster.replicas_lost_total:
            assert [node.id for node in play.cluster.locations(0)] == ["dn-2"]
            assert [node.id for node in play.cluster.locations(many - 1)] == ["dn-2"]
            under.append(len(play.cluster.chunks.under) // lost_replicas_per_turn)
    assert under == [1, 2, 3, 3]
    assert play.cluster.replicas_lost_total == many


def test_a_replica_that_nobody_has_confirmed_since_is_no_reason_to_drop_another(play: Play) -> None:
    """dn-1 registers again, perhaps with an empty disk; dn-2 has the other of two replicas. One is wanted."""
    many = 2 * lost_replicas_per_turn
    play.join("dn-1", "dn-2")
    play.open_for_business()
    play.publish([record(number, replication=2, hint=("dn-1", "dn-2")) for number in range(many)])
    play.cluster.register(play.now_s, registration("dn-1"))
    play.cluster.load([record(number, replication=1) for number in range(many)])
    play.cluster.report(play.now_s, "dn-1", ReportChunks([], last=True))
    ordered = [
        (order.node, replica.chunk)
        for ticked in play.ticks(5.0)
        for order in ticked.orders
        if isinstance(order.message, DeleteChunks)
        for replica in order.message.replicas
    ]
    assert ordered == []
    assert not play.cluster.chunks.missing


def _awaiting(play: Play) -> int:
    """Return in turns for how many chunks dn-1 is awaited."""
    states = [play.cluster.chunks.get(number) for number in range(MANY)]
    awaited = sum(state is not None and state.awaited == ("dn-1",) for state in states)
    assert awaited % lost_replicas_per_turn == 0
    return awaited // lost_replicas_per_turn


@pytest.fixture
def in_maintenance(play: Play) -> Play:
    """Return a play with chunks for three turns on dn-1 and dn-2; dn-1 is off, in maintenance."""
    play.join("dn-1", "dn-2", "dn-3")
    play.open_for_business()
    play.publish([record(number, replication=2, hint=("dn-1", "dn-2")) for number in range(MANY)])
    play.cluster.set_mode("dn-1", Mode.MAINTENANCE, play.now_s + 3600.0)
    play.beating.remove("dn-1")
    turns = []
    while (awaiting := _awaiting(play)) < 3:
        assert [ticked.copies for ticked in play.let_pass(0.5)] == [[]]
        turns.append(awaiting)
    assert turns[-3:] == [0, 1, 2]
    return play


def test_maintenance_has_replicas_awaited_in_turns_and_none_is_lost(in_maintenance: Play) -> None:
    assert in_maintenance.cluster.replicas_lost_total == 0
    assert not in_maintenance.cluster.chunks.under


def test_when_its_time_is_over_they_are_lost_after_all_and_repair_sees_them_in_turns(in_maintenance: Play) -> None:
    while not in_maintenance.cluster.replicas_lost_total:
        in_maintenance.let_pass(0.5)
    assert in_maintenance.cluster.replicas_lost_total == MANY
    under = [len(in_maintenance.cluster.chunks.under) // lost_replicas_per_turn]
    while under[-1] < 3:
        in_maintenance.let_pass(0.5)
        under.append(len(in_maintenance.cluster.chunks.under) // lost_replicas_per_turn)
    assert under == [1, 2, 3]
    assert _awaiting(in_maintenance) == 0


def test_returning_node_leaves_under_replicated_only_what_it_does_not_bring(
    in_maintenance: Play,
) -> None:
    back = [Replica(number, 1, 1000) for number in range(lost_replicas_per_turn)]
    in_maintenance.cluster.register(in_maintenance.now_s, registration("dn-1"))
    in_maintenance.cluster.report(in_maintenance.now_s, "dn-1", ReportChunks(back, last=True))
    in_maintenance.beating.add("dn-1")
    assert in_maintenance.cluster.chunks.held_by("dn-1") == len(back)
    under = []
    for _ in range(3):
        in_maintenance.let_pass(0.5)
        under.append(len(in_maintenance.cluster.chunks.under) // lost_replicas_per_turn)
    assert under == [1, 2, 2]
    assert set(in_maintenance.cluster.chunks.under) == set(range(lost_replicas_per_turn, MANY))
    assert in_maintenance.cluster.replicas_lost_total == 0


def test_maintenance_that_ends_before_replicas_were_removed_keeps_what_the_datanode_confirms() -> None:
    chunks = ChunkMap()
    for chunk in CHUNKS:
        chunks.add_chunk(record(chunk, replication=2), ["a", "b"])
    chunks.set_mode("a", Mode.MAINTENANCE)
    assert chunks.remove_node("a") == 0
    assert all(chunks.is_lost(chunk, "a") for chunk in CHUNKS)
    chunks.add_replica("a", Replica(1, 1, 1000))
    assert chunks.await_no_more("a") == len(CHUNKS) - 1
    assert not chunks.remove_lost(1000)
    assert set(chunks.under) == set(CHUNKS) - {1}
    assert chunks.held_by("a") == 1


def test_a_datanode_that_is_lost_twice_before_its_turn_loses_each_replica_once() -> None:
    chunks = ChunkMap()
    chunks.add_chunk(record(1, replication=2), ["a", "b"])
    assert chunks.remove_node("a") == 1
    chunks.add_chunk(record(2, replication=2), ["a", "b"])
    assert chunks.remove_node("a") == 1
    assert chunks.remove_node("a") == 0
    assert not chunks.remove_lost(1000)
    assert set(chunks.under) == {1, 2}
