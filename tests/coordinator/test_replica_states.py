"""The transitions of a replica: the table, written by hand a second time, by events."""

from __future__ import annotations

import pytest
from support.play import Play, record

from peacefs.coordinator.cluster.replica_states import TRANSITIONS, ReplicaEvent, ReplicaState, follow
from peacefs.protocol.messages import Replica

#: The states by their first letters, in the order of the columns below.
_COLUMNS = ("ABSENT", "UNREFERENCED", "UNCONFIRMED", "LIVE", "CORRUPT", "LOST", "AWAITED", "FREED", "DELETING")
_NAMES = {
    "abs": "ABSENT",
    "unr": "UNREFERENCED",
    "unc": "UNCONFIRMED",
    "liv": "LIVE",
    "cor": "CORRUPT",
    "los": "LOST",
    "awa": "AWAITED",
    "fre": "FREED",
    "del": "DELETING",
}
_BY_EVENT = """
                        abs  unr  unc  liv  cor  los  awa  fre  del
    REPORTED            liv  -    liv  liv  cor  liv  liv  -    liv
    REPORTED_UNREFERENCED unr unr -    -    -    -    -    -    unr
    REPORTED_FREED      fre  -    -    -    -    -    -    fre  fre
    REPORTED_NEWER      abs  -    liv  liv  cor  los  awa  -    del
    MISMATCHED          abs  abs  unc  liv  cor  los  awa  -    del
    ATTESTED            unc  -    unc  liv  cor  unc  unc  -    unc
    REFERENCED          -    liv  -    -    -    -    -    -    -
    DEREFERENCED        abs  -    fre  fre  fre  abs  abs  -    del
    REMOVED             abs  abs  abs  abs  abs  abs  abs  abs  abs
    FOUND_CORRUPT       cor  -    cor  cor  cor  cor  cor  fre  cor
    OVERDUE             abs  -    abs  -    -    abs  abs  fre  del
    NODE_LOST           -    abs  los  los  cor  los  awa  fre  abs
    NODE_AWAY           -    abs  awa  awa  cor  los  awa  fre  abs
    NODE_GIVEN_UP       -    unr  unc  liv  cor  los  los  fre  del
    EXPECTED            awa  -    unc  liv  cor  awa  awa  -    -
    SWEPT               -    -    -    -    abs  abs  -    -    -
    ABANDONED           -    abs  -    -    -    -    -    -    -
    GARBAGE             -    abs  -    -    -    -    -    -    -
    RELEASED            -    -    -    -    -    -    -    abs  -
    EXCESS              -    -    del  del  del  -    -    -    -
    LAPSED              -    -    -    -    -    -    -    -    abs
    COPY_ORDERED        abs  -    -    -    -    -    -    -    -
    COPY_FAILED         abs  unr  unc  liv  cor  los  awa  fre  del
"""


def by_hand() -> dict[tuple[ReplicaState, ReplicaEvent], ReplicaState]:
    head, *rows = [line.split() for line in _BY_EVENT.splitlines() if line.strip()]
    assert tuple(_NAMES[name] for name in head) == _COLUMNS == tuple(state.name for state in ReplicaState)
    assert sorted(row[0] for row in rows) == sorted(event.name for event in ReplicaEvent)
    return {
        (ReplicaState[before], ReplicaEvent[event]): ReplicaState[_NAMES[after]]
        for event, *row in rows
        for before, after in zip(_COLUMNS, row, strict=True)
        if after != "-"
    }


def test_replica_states_follow_the_table_that_was_written_by_hand() -> None:
    table = {(before, event): after for before, row in TRANSITIONS.items() for event, after in row.items()}
    expected = by_hand()
    for key in sorted(table.keys() | expected.keys()):
        assert table.get(key) == expected.get(key), f"{key[0].name}, {key[1].name}"


def test_replica_of_a_state_that_an_event_does_not_concern_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="GARBAGE of a replica that is LIVE"):
        follow(ReplicaState.LIVE, ReplicaEvent.GARBAGE)


def test_replica_can_come_into_every_state_and_out_of_it_again() -> None:
    reached, unseen = {ReplicaState.ABSENT}, [ReplicaState.ABSENT]
    while unseen:
        new = set(TRANSITIONS[unseen.pop()].values()) - reached
        reached |= new
        unseen += new
    assert reached == set(ReplicaState)
    for state in ReplicaState:
        assert follow(state, ReplicaEvent.REMOVED) is ReplicaState.ABSENT, "its datanode has the last word"


def test_replica_is_deleted_for_a_reason_alone() -> None:
    """Without such an event, a good replica of a file's chunk stays listed."""
    harmful = {event for event, after in TRANSITIONS[ReplicaState.LIVE].items() if after is not ReplicaState.LIVE}
    assert {event.name for event in harmful} == {
        "DEREFERENCED",
        "REMOVED",
        "FOUND_CORRUPT",
        "NODE_LOST",
        "NODE_AWAY",
        "EXCESS",
    }


def test_replica_that_changes_without_an_event_is_noticed_by_the_watch_of_the_simulations(play: Play) -> None:
    held = Replica(7, 1, 1000)
    play.join("dn-1", holding=(held,))
    play.cluster.load([record(7, replication=1, hint=("dn-1",))])
    play.replicas.compare()
    play.cluster.chunks.remove_replica("dn-1", 7)
    with pytest.raises(AssertionError, match="a replica that was LIVE is ABSENT without an event"):
        play.replicas.compare()


def test_replica_whose_lists_disagree_with_the_table_is_noticed_by_the_watch(play: Play) -> None:
    play.join("dn-1", holding=(Replica(7, 1, 1000),))
    with pytest.raises(AssertionError, match="makes ABSENT of UNREFERENCED, and the lists say UNREF"):
        play.replicas.note(play.now_s, ReplicaEvent.REMOVED, 7, "dn-1")
