"""A datanode in maintenance: its replicas are waited for, but never the only ones relied on."""

from __future__ import annotations

import pytest
from support.play import USAGE, Play, record, registration

from peacefs.coordinator.cluster.membership import AdminState
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.messages import DeleteChunks, Heartbeat, Replica, ReportChunks

HOLDING = [Replica(chunk, 1, 1000) for chunk in range(1, 6)]


def copies(play: Play, seconds: float) -> list[ReplicaCopy]:
    """Return the ordered copies; each succeeds."""
    made = []
    for ticked in play.ticks(seconds):
        for copy in ticked.copies:
            play.copied(copy)
            made.append(copy)
    return made


def admin_state(play: Play, node_id: str) -> AdminState:
    node = play.cluster.members.get(node_id)
    assert node is not None
    return play.cluster.admin_state_of(node)


def come_back(play: Play, node_id: str, holding: list[Replica]) -> None:
    play.cluster.register(play.now_s, registration(node_id, "/1"))
    play.cluster.report(play.now_s, node_id, ReportChunks(holding, last=True))
    play.beating.add(node_id)


@pytest.fixture
def play(play: Play) -> Play:
    """Return five datanodes in two racks; the first three hold chunks 1 to 5, and the first is in maintenance for
    an hour.
    """
    play.join("dn-1", "dn-2", rack="/1")
    play.join("dn-3", "dn-4", "dn-5", rack="/2")
    play.open_for_business()
    play.publish([record(chunk, hint=("dn-1", "dn-2", "dn-3")) for chunk in range(1, 6)])
    play.cluster.set_mode("dn-1", Mode.MAINTENANCE, play.now_s + 3600.0)
    return play


def test_it_may_be_switched_off_and_nothing_is_copied(play: Play) -> None:
    assert admin_state(play, "dn-1") is AdminState.IN_MAINTENANCE
    play.beating.discard("dn-1")
    assert copies(play, 60.0) == []
    assert play.cluster.replicas_lost_total == 0
    assert {node.id for node in play.cluster.locations(1)} == {"dn-2", "dn-3"}
    come_back(play, "dn-1", HOLDING)
    play.cluster.set_mode("dn-1", Mode.IN_SERVICE)
    assert copies(play, 10.0) == []
    assert {node.id for node in play.cluster.locations(1)} == {"dn-1", "dn-2", "dn-3"}


def test_nothing_new_is_placed_there(play: Play) -> None:
    for chunk in range(100, 130):
        nodes = play.cluster.place(play.now_s, chunk, "dn-1.example", 3, frozenset(), 60.0)
        assert "dn-1" not in {node.id for node in nodes}


def test_maintenance_waits_until_what_only_the_node_holds_is_copied(play: Play) -> None:
    play.publish([record(9, replication=1, hint=("dn-1",))])
    assert admin_state(play, "dn-1") is AdminState.ENTERING_MAINTENANCE
    assert play.cluster.chunks.to_drain("dn-1") == 1
    (copy,) = copies(play, 5.0)
    assert (copy.chunk, copy.source) == (9, "dn-1")
    assert admin_state(play, "dn-1") is AdminState.IN_MAINTENANCE
    assert play.let_pass(5.0)[-1].orders == [], "the two replicas of it are not one too many yet"
    play.cluster.set_mode("dn-1", Mode.IN_SERVICE)
    drops = [order.message for ticked in play.let_pass(2.0) for order in ticked.orders]
    assert [len(drop.replicas) for drop in drops if isinstance(drop, DeleteChunks)] == [1]


def test_when_the_time_is_over_it_is_as_dead_as_any(play: Play) -> None:
    play.beating.discard("dn-1")
    assert copies(play, 3590.0) == []
    made = copies(play, 60.0)
    assert {copy.chunk for copy in made} == set(range(1, 6))


def test_another_datanode_that_dies_meanwhile_is_made_up_for(play: Play) -> None:
    play.beating -= {"dn-1", "dn-2"}
    made = copies(play, 30.0)
    assert {copy.chunk for copy in made} == set(range(1, 6))
    assert len(made) == 5, "one replica each: the one that is waited for counts"


def test_data_that_only_it_has_is_missing_while_it_is_away(play: Play) -> None:
    play.beating -= {"dn-1", "dn-2", "dn-3"}
    play.let_pass(15.0)
    assert play.cluster.chunks.missing == set(range(1, 6))
    come_back(play, "dn-1", HOLDING)
    assert play.cluster.chunks.missing == set()


def test_maintenance_ends_with_copies_of_what_the_node_does_not_bring_back(play: Play) -> None:
    play.beating.discard("dn-1")
    copies(play, 15.0)
    come_back(play, "dn-1", HOLDING[:2])
    assert {copy.chunk for copy in copies(play, 10.0)} == {3, 4, 5}


def test_chunks_that_are_deleted_meanwhile_are_forgotten(play: Play) -> None:
    play.beating.discard("dn-1")
    play.let_pass(15.0)
    play.cluster.freed(play.now_s, [record(1), record(2)])
    come_back(play, "dn-1", HOLDING)
    play.cluster.set_mode("dn-1", Mode.IN_SERVICE)
    assert copies(play, 10.0) == []
    assert len(play.cluster.chunks) == 3


def test_a_coordinator_that_restarts_meanwhile_waits_for_what_completions_named() -> None:
    play = Play()
    play.cluster.set_mode("dn-1", Mode.MAINTENANCE, play.now_s + 3600.0)
    play.cluster.load([record(chunk, hint=("dn-1", "dn-2", "dn-3")) for chunk in range(1, 6)])
    play.cluster.loaded()
    play.join("dn-2", rack="/1", holding=tuple(HOLDING))
    play.join("dn-3", rack="/2", holding=tuple(HOLDING))
    play.join("dn-4", rack="/2")
    assert copies(play, 60.0) == []
    come_back(play, "dn-1", [])
    assert {copy.chunk for copy in copies(play, 10.0)} == set(range(1, 6)), "it has nothing of it any more"


def test_a_hint_is_no_reason_to_wait_for_a_datanode_that_is_there(play: Play) -> None:
    play.cluster.load([record(70, replication=2, hint=("dn-1", "dn-2"))])
    play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, added=[Replica(70, 1, 1000)]))
    assert [copy.chunk for copy in copies(play, 5.0)] == [70]
