"""Replicas that are lost with their datanode are taken out little by little, with the same outcome as at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.play import Play, record, registration

from peacefs.coordinator.chunk_map import ChunkMap
from peacefs.protocol.limits import lost_replicas_per_turn
from peacefs.protocol.messages import DeleteChunks, Replica, ReportChunks

NODES = ("a", "b", "c")
CHUNKS = range(1, 7)

_kinds = st.sampled_from(["know", "forget", "hold", "hold", "hold", "drop", "spoil", "lose", "lose", "take out"])
_steps = st.lists(st.tuples(_kinds, st.sampled_from(NODES), st.sampled_from(CHUNKS)), max_size=60)


def _apply(chunks: ChunkMap, what: str, node: str, chunk: int) -> None:
    match what:
        case "know":
            chunks.know(record(chunk, replication=2))
        case "forget":
            chunks.forget(chunk)
        case "hold":
            chunks.hold(node, Replica(chunk, 1, 1000))
        case "drop":
            chunks.drop(node, chunk)
        case "spoil":
            chunks.spoil(node, chunk)
        case "lose":
            chunks.lose(node)


def _summary(chunks: ChunkMap) -> object:
    states = {
        chunk: (sorted(state.holders), sorted(state.corrupt))
        for chunk in CHUNKS
        if (state := chunks.get(chunk)) is not None
    }
    held = [chunks.held_by(node) for node in NODES]
    return states, held, set(chunks.under), chunks.over, chunks.missing, chunks.unclaimed.counts(0)


@given(_steps)
def test_whatever_happens_meanwhile_the_end_is_that_of_losing_them_at_once(
    steps: list[tuple[str, str, int]],
) -> None:
    at_once, bit_by_bit = ChunkMap(), ChunkMap()
    for what, node, chunk in [("know", "a", chunk) for chunk in CHUNKS] + steps:
        for chunks in (at_once, bit_by_bit):
            _apply(chunks, what, node, chunk)
        at_once.take_out_lost(1000)
        if what == "take out":
            bit_by_bit.take_out_lost(1)
    assert not bit_by_bit.take_out_lost(1000)
    assert _summary(bit_by_bit) == _summary(at_once)


def test_a_dead_datanode_with_many_chunks_is_gone_for_readers_at_once_and_for_repair_in_turns(play: Play) -> None:
    many = 3 * lost_replicas_per_turn
    play.join("dn-1", "dn-2", "dn-3")
    play.open_for_business()
    play.cluster.published([record(number, replication=2, hint=("dn-1", "dn-2")) for number in range(many)])
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
    """dn-1 registers anew, as with an empty disk; dn-2 has the other of two replicas, where one is wanted."""
    many = 2 * lost_replicas_per_turn
    play.join("dn-1", "dn-2")
    play.open_for_business()
    play.cluster.published([record(number, replication=2, hint=("dn-1", "dn-2")) for number in range(many)])
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
