"""Changes to all replicas of a datanode happen in steps, with right decisions in between."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.play import Play, record

from peacefs.coordinator.cluster.chunk_map import ChunkMap
from peacefs.coordinator.cluster.membership import AdminState
from peacefs.coordinator.cluster.unreferenced_chunks import UnreferencedChunks
from peacefs.coordinator.limits import lost_replicas_per_turn
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.messages import Replica

_MANY = 5 * lost_replicas_per_turn


def test_a_datanode_with_many_chunks_is_not_said_to_be_drained_before_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play()
    play.join("dn-1", "dn-2", "dn-3", rack="/1")
    play.open_for_business()
    # The replicas that are visited first are listed last, and could be dropped.
    play.cluster.published([record(chunk, replication=1, hint=("dn-1", "dn-2")) for chunk in range(_MANY)])
    play.cluster.chunks.add_chunk(record(3, replication=3))
    looked_at = 0
    reindex = ChunkMap._reindex

    def count(self: ChunkMap, chunk: int, state: object) -> None:
        nonlocal looked_at
        looked_at += 1
        reindex(self, chunk, state)  # type: ignore[arg-type]

    monkeypatch.setattr(ChunkMap, "_reindex", count)
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    node = play.cluster.members.get("dn-1")
    assert node is not None
    assert looked_at == lost_replicas_per_turn
    assert play.cluster.admin_state_of(node) is AdminState.DECOMMISSIONING
    while not play.cluster.chunks.is_indexed("dn-1"):
        before = looked_at
        play.cluster.chunks.remove_lost(lost_replicas_per_turn)
        assert 0 < looked_at - before <= lost_replicas_per_turn
    assert looked_at == _MANY
    assert play.cluster.chunks.to_drain("dn-1") == 1
    assert set(play.cluster.chunks.under) == {3}


@given(st.lists(st.tuples(st.sampled_from("hdlct"), st.sampled_from(["a", "b"]), st.integers(1, 4)), max_size=40))
def test_lost_node_counts_as_lost_at_once_to_all_who_ask(steps: list[tuple[str, str, int]]) -> None:
    little, model = UnreferencedChunks(), dict[tuple[str, int], Replica]()
    random = Random(1)
    for what, node, chunk in steps:
        match what:
            case "h":
                replica = Replica(chunk, random.randint(1, 3), random.randint(1, 9))
                little.add_replica(node, replica)
                model[node, chunk] = replica
            case "d":
                little.remove_replica(node, chunk)
                model.pop((node, chunk), None)
            case "l":
                little.remove_node(node)
                model = {key: replica for key, replica in model.items() if key[0] != node}
            case "c":
                taken = little.take(chunk)
                assert taken == {holder: replica for (holder, of), replica in model.items() if of == chunk}
                model = {key: replica for key, replica in model.items() if key[1] != chunk}
            case "t":
                little.remove_lost(1)
        assert set(little.replicas()) == {(holder, replica) for (holder, _), replica in model.items()}
        assert set(little.below(Garbage(9), 9)) == set(little.replicas())
    while little.remove_lost(2):
        pass
    counts = little.counts(0)
    assert (counts.replicas, counts.bytes) == (len(model), sum(replica.length for replica in model.values()))
    assert counts.chunks == len({chunk for _, chunk in model})
