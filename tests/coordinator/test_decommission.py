"""Decommissioning a datanode: it gets no new chunks, its chunks are copied away, then it may be removed."""

from __future__ import annotations

import pytest
from support.play import Play, record, registration

from peacefs.coordinator.cluster.membership import AdminState
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.messages import DeleteChunks, Replica, ReportChunks


def copies(play: Play, seconds: float) -> list[ReplicaCopy]:
    return [copy for ticked in play.ticks(seconds) for copy in ticked.copies]


def admin_state(play: Play, node_id: str) -> AdminState:
    node = play.cluster.members.get(node_id)
    assert node is not None
    return play.cluster.admin_state_of(node)


def drain(play: Play) -> list[ReplicaCopy]:
    """Let every copy succeed; return all copies when none is left to make."""
    made = []
    while new := copies(play, 1.0):
        for copy in new:
            play.copied(copy)
        made += new
    return made


@pytest.fixture
def play(play: Play) -> Play:
    """Return four datanodes in two racks; the first three hold chunks 1 to 5."""
    play.join("dn-1", "dn-2", rack="/1")
    play.join("dn-3", "dn-4", rack="/2")
    play.open_for_business()
    play.publish([record(chunk, hint=("dn-1", "dn-2", "dn-3")) for chunk in range(1, 6)])
    return play


def test_decommissioning_copies_what_a_datanode_holds_and_then_it_may_go(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING
    assert play.cluster.chunks.to_drain("dn-1") == 5
    made = drain(play)
    assert {copy.chunk for copy in made} == set(range(1, 6))
    assert {copy.target for copy in made} == {"dn-4"}
    assert play.cluster.chunks.to_drain("dn-1") == 0
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONED
    assert play.cluster.replicas_lost_total == 0


def test_progress_is_seen_while_it_drains(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    first, *_others = copies(play, 0.5)
    play.copied(first)
    assert play.cluster.chunks.to_drain("dn-1") == 4
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING


def test_the_last_good_replica_is_read_and_copied_from_the_datanode_that_leaves(play: Play) -> None:
    play.publish([record(9, replication=2, hint=("dn-1",))])
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    assert [node.id for node in play.cluster.locations(9)] == ["dn-1"]
    made = [copy for copy in drain(play) if copy.chunk == 9]
    assert made[0].source == "dn-1"
    assert len({copy.target for copy in made} - {"dn-1"}) == 2


def test_replicas_on_it_are_neither_missed_nor_in_excess(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    drain(play)
    later = play.let_pass(5.0)
    assert not [order for ticked in later for order in ticked.orders if isinstance(order.message, DeleteChunks)]
    assert len(play.cluster.locations(1)) == 4
    assert play.cluster.locations(1)[-1].id == "dn-1", "readers are sent to the others first"


def test_nothing_new_is_placed_there(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    for chunk in range(100, 130):
        nodes = play.cluster.place(play.now_s, chunk, "dn-1.example", 3, frozenset(), 60.0)
        assert {node.id for node in nodes} == {"dn-2", "dn-3", "dn-4"}
    for node in ("dn-2", "dn-3", "dn-4"):
        play.cluster.set_mode(node, Mode.DECOMMISSION)
    with pytest.raises(NoDatanodes, match="4 to leave"):
        play.cluster.place(play.now_s, 200, None, 3, frozenset(), 60.0)


def test_a_write_that_was_under_way_to_it_is_drained_too(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    drain(play)
    play.publish([record(50, hint=("dn-1", "dn-2", "dn-3"))])
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING
    (copy,) = drain(play)
    assert (copy.chunk, copy.target) == (50, "dn-4")
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONED


def test_decommission_waits_for_chunks_that_cannot_be_drained(play: Play) -> None:
    for node in ("dn-1", "dn-4"):
        play.cluster.set_mode(node, Mode.DECOMMISSION)
    assert drain(play) == []
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING
    assert admin_state(play, "dn-4") is AdminState.DECOMMISSIONED, "it holds nothing"


def test_decommission_that_can_never_end_is_reported_until_it_can(play: Play) -> None:
    """Three replicas of each chunk are wanted, and without both datanodes only two are left."""
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    node = play.cluster.members.get("dn-1")
    assert node is not None
    assert play.cluster.without_a_place(node) == 0, "dn-4 takes them"
    play.cluster.set_mode("dn-4", Mode.DECOMMISSION)
    assert play.cluster.without_a_place(node) == 5
    play.join("dn-5", rack="/2")
    assert play.cluster.without_a_place(node) == 0
    drain(play)
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONED


def test_back_in_service_its_replicas_count_again_and_those_in_excess_go(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    drain(play)
    play.cluster.set_mode("dn-1", Mode.IN_SERVICE)
    assert admin_state(play, "dn-1") is AdminState.IN_SERVICE
    dropped = [
        replica.chunk
        for ticked in play.let_pass(2.0)
        for order in ticked.orders
        if isinstance(order.message, DeleteChunks)
        for replica in order.message.replicas
    ]
    assert sorted(dropped) == [1, 2, 3, 4, 5]
    assert not play.cluster.chunks.under
    assert not play.cluster.chunks.over


def test_a_decision_outlives_a_restart_of_the_datanode(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    drain(play)
    play.cluster.register(play.now_s, registration("dn-1", "/1"))
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING, "what it holds is not known before its report"
    holding = [Replica(chunk, 1, 1000) for chunk in range(1, 6)]
    play.cluster.report(play.now_s, "dn-1", ReportChunks(holding, last=True))
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONED


def test_one_that_dies_while_it_drains_is_made_up_for_like_any(play: Play) -> None:
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    play.beating.discard("dn-1")
    made = drain(play)
    play.let_pass(12.0)
    assert {copy.target for copy in made + drain(play)} == {"dn-4"}
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONED


def test_nobody_is_said_to_be_drained_by_a_coordinator_that_has_just_started() -> None:
    play = Play()
    play.cluster.set_mode("dn-1", Mode.DECOMMISSION)
    play.cluster.load([record(1, hint=("dn-1", "dn-2"))])
    play.join("dn-1", rack="/1")
    assert admin_state(play, "dn-1") is AdminState.DECOMMISSIONING
