"""Chunks that a writer abandons become garbage at once, only on the writer's word, and are never published."""

from __future__ import annotations

import pytest
from support.play import Play, record

from peacefs.coordinator.cluster.chunk_writes import ChunkAssignments, abandoned_chunks_max, assigned_chunks_max
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.messages import DeleteChunks, Heartbeat, Replica

CHUNK = 7
HELD = Replica(CHUNK, 1, record(CHUNK).length)


@pytest.fixture
def play() -> Play:
    play = Play()
    play.join("dn-1", "dn-2", "dn-3")
    play.open_for_business()
    return play


def holds(play: Play, node: str, replica: Replica = HELD) -> list[tuple[str, list[Replica]]]:
    """Report a datanode's replica. Return the replicas to delete."""
    orders = play.cluster.heartbeat(play.now_s, node, Heartbeat(play.cluster.members.all()[0].usage, [replica]))
    return [(order.node, order.message.replicas) for order in orders if isinstance(order.message, DeleteChunks)]


def test_abandoned_chunk_loses_its_replicas_at_once_and_those_that_come_later(
    play: Play,
) -> None:
    play.cluster.assignments.assign(CHUNK, "writer")
    assert holds(play, "dn-1") == []
    orders = play.cluster.abandon([CHUNK], "writer")
    assert [(order.node, order.message) for order in orders] == [("dn-1", DeleteChunks([HELD]))]
    assert holds(play, "dn-2") == [("dn-2", [HELD])]
    assert len(play.cluster.chunks.unreferenced) == 0


@pytest.mark.parametrize("assigned_to", [None, "another writer"])
def test_chunk_is_abandoned_by_nobody_but_the_writer_it_is_assigned_to(
    play: Play, assigned_to: str | None
) -> None:
    if assigned_to is not None:
        play.cluster.assignments.assign(CHUNK, assigned_to)
    assert holds(play, "dn-1") == []
    assert play.cluster.abandon([CHUNK], "writer") == []
    with play.cluster.assignments.publishing([CHUNK]):
        play.publish([record(CHUNK, hint=("dn-1",))])
    assert play.cluster.chunks.get(CHUNK).holders == ("dn-1",)


def test_chunk_of_a_file_or_of_one_to_be_is_abandoned_by_nobody(play: Play) -> None:
    play.cluster.assignments.assign(CHUNK, "writer")
    assert holds(play, "dn-1") == []
    with play.cluster.assignments.publishing([CHUNK]):
        assert play.cluster.abandon([CHUNK], "writer") == []
        play.publish([record(CHUNK, hint=("dn-1",))])
        assert play.cluster.abandon([CHUNK], "writer") == []
    assert play.cluster.abandon([CHUNK], "writer") == []
    assert holds(play, "dn-2") == []
    assert play.cluster.chunks.get(CHUNK).holders == ("dn-1", "dn-2")


def test_a_file_that_names_what_its_writer_gave_up_is_refused() -> None:
    assignments = ChunkAssignments()
    assignments.assign(CHUNK, "writer")
    assert assignments.abandon(CHUNK, "writer")
    with pytest.raises(BadRequest, match="abandoned by its writer"), assignments.publishing([1, CHUNK]):
        raise AssertionError("it is published")
    assignments.assign(1, "writer")
    assert assignments.abandon(1, "writer"), "what was to be published with it is free again"


def test_a_publication_that_fails_leaves_a_chunk_to_its_writer() -> None:
    assignments = ChunkAssignments()
    assignments.assign(CHUNK, "writer")
    with pytest.raises(OSError, match="disk"), assignments.publishing([CHUNK]):
        raise OSError("the disk is full")
    assert assignments.chunks_of("writer") == [CHUNK]
    assert assignments.abandon(CHUNK, "writer") and assignments.chunks_of("writer") == []


def test_it_remembers_so_many_and_forgets_the_oldest() -> None:
    assignments = ChunkAssignments()
    for chunk in range(assigned_chunks_max + 10):
        assignments.assign(chunk, f"writer {chunk // 3}")
    assert not assignments.abandon(9, "writer 3") and assignments.abandon(10, "writer 3")
    for chunk in range(1_000_000, 1_000_000 + abandoned_chunks_max):
        assignments.assign(chunk, "writer")
        assert assignments.abandon(chunk, "writer")
    assert len(assignments) == abandoned_chunks_max and 10 not in assignments
