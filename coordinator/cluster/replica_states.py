"""The life of a replica, one chunk on one datanode, as the coordinator sees it: a table. Pure.

    after = TRANSITIONS[before][event]        what is not in the table does not happen

Where replicas are kept, as sets and tuples by the million, is the business of `chunk_map`, `unreferenced_chunks`,
`transient_chunks` and `repair`; which state a replica is in follows from where it is found
(`replica_lookup`). Every event that concerns one replica goes through the table, or is held against it in
the simulated cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Final


class ReplicaState(IntEnum):
    """In what state a replica is. Readers are sent to `UNCONFIRMED`, `LIVE` and `FREED` ones."""

    #: The datanode has none, as far as is known here.
    ABSENT = auto()
    #: The datanode has one, and no file refers to the chunk: it is being written, or what was written failed.
    UNREFERENCED = auto()
    #: Somebody else said so: a receipt, or the source of a copy. The datanode is to confirm it.
    UNCONFIRMED = auto()
    #: The datanode said so itself.
    LIVE = auto()
    #: It does not match its checksums. It stays until others are known to hold the same.
    CORRUPT = auto()
    #: Its datanode is dead, or has started anew and not said yet that it has it.
    LOST = auto()
    #: Its datanode is down for maintenance and is to come back with it.
    AWAITED = auto()
    #: No file refers to the chunk any more; it stays for a moment, for readers that have the file open.
    FREED = auto()
    #: The datanode was told to delete it, for others hold the same, and has not confirmed it.
    DELETING = auto()


class ReplicaEvent(IntEnum):
    """An event in the life of a replica."""

    #: Its datanode says that it has it; no file refers to the chunk; none does any more.
    REPORTED = auto()
    REPORTED_UNREFERENCED = auto()
    REPORTED_FREED = auto()
    #: Its datanode has a newer version than the file's: one whose completion is not in.
    REPORTED_NEWER = auto()
    #: Its datanode has an older version than the file's, or a torn one, and is told to delete that.
    MISMATCHED = auto()
    #: Somebody else says that the datanode has it.
    ATTESTED = auto()
    #: A file refers to the chunk now, or none any more.
    REFERENCED = auto()
    DEREFERENCED = auto()
    #: Its datanode says that it does not have it, or that it is corrupt.
    REMOVED = auto()
    FOUND_CORRUPT = auto()
    #: Its datanode has not confirmed in time what others said.
    OVERDUE = auto()
    #: Its datanode is dead or starts anew; is down for maintenance; is not waited for any more.
    NODE_LOST = auto()
    NODE_AWAY = auto()
    NODE_GIVEN_UP = auto()
    #: Known before the start to be on a datanode that is down for maintenance.
    EXPECTED = auto()
    #: The replicas of a lost datanode are removed from the lists.
    SWEPT = auto()
    #: Its datanode is told to delete it: the writer gave the chunk up, it is below the GC floor, nobody can be
    #: reading it any more, others have shown that they hold the same.
    ABANDONED = auto()
    GARBAGE = auto()
    RELEASED = auto()
    EXCESS = auto()
    #: The deletion was not confirmed in time.
    LAPSED = auto()
    #: The datanode is to get a copy, and did not.
    COPY_ORDERED = auto()
    COPY_FAILED = auto()


_S, _E = ReplicaState, ReplicaEvent

TRANSITIONS: Final[Mapping[ReplicaState, Mapping[ReplicaEvent, ReplicaState]]] = {
    _S.ABSENT: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_UNREFERENCED: _S.UNREFERENCED,
        _E.REPORTED_FREED: _S.FREED,
        _E.REPORTED_NEWER: _S.ABSENT,
        _E.MISMATCHED: _S.ABSENT,
        _E.ATTESTED: _S.UNCONFIRMED,
        _E.DEREFERENCED: _S.ABSENT,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.OVERDUE: _S.ABSENT,
        _E.EXPECTED: _S.AWAITED,
        _E.COPY_ORDERED: _S.ABSENT,
        _E.COPY_FAILED: _S.ABSENT,
    },
    _S.UNREFERENCED: {
        _E.REPORTED_UNREFERENCED: _S.UNREFERENCED,
        _E.REFERENCED: _S.LIVE,
        _E.MISMATCHED: _S.ABSENT,
        _E.REMOVED: _S.ABSENT,
        _E.NODE_LOST: _S.ABSENT,
        _E.NODE_AWAY: _S.ABSENT,
        _E.NODE_GIVEN_UP: _S.UNREFERENCED,
        _E.ABANDONED: _S.ABSENT,
        _E.GARBAGE: _S.ABSENT,
        _E.COPY_FAILED: _S.UNREFERENCED,
    },
    _S.UNCONFIRMED: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_NEWER: _S.LIVE,
        _E.MISMATCHED: _S.UNCONFIRMED,
        _E.ATTESTED: _S.UNCONFIRMED,
        _E.DEREFERENCED: _S.FREED,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.OVERDUE: _S.ABSENT,
        _E.NODE_LOST: _S.LOST,
        _E.NODE_AWAY: _S.AWAITED,
        _E.NODE_GIVEN_UP: _S.UNCONFIRMED,
        _E.EXPECTED: _S.UNCONFIRMED,
        _E.EXCESS: _S.DELETING,
        _E.COPY_FAILED: _S.UNCONFIRMED,
    },
    _S.LIVE: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_NEWER: _S.LIVE,
        _E.MISMATCHED: _S.LIVE,
        _E.ATTESTED: _S.LIVE,
        _E.DEREFERENCED: _S.FREED,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.NODE_LOST: _S.LOST,
        _E.NODE_AWAY: _S.AWAITED,
        _E.NODE_GIVEN_UP: _S.LIVE,
        _E.EXPECTED: _S.LIVE,
        _E.EXCESS: _S.DELETING,
        _E.COPY_FAILED: _S.LIVE,
    },
    _S.CORRUPT: {
        _E.REPORTED: _S.CORRUPT,
        _E.REPORTED_NEWER: _S.CORRUPT,
        _E.MISMATCHED: _S.CORRUPT,
        _E.ATTESTED: _S.CORRUPT,
        _E.DEREFERENCED: _S.FREED,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.NODE_LOST: _S.CORRUPT,
        _E.NODE_AWAY: _S.CORRUPT,
        _E.NODE_GIVEN_UP: _S.CORRUPT,
        _E.EXPECTED: _S.CORRUPT,
        _E.SWEPT: _S.ABSENT,
        _E.EXCESS: _S.DELETING,
        _E.COPY_FAILED: _S.CORRUPT,
    },
    _S.LOST: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_NEWER: _S.LOST,
        _E.MISMATCHED: _S.LOST,
        _E.ATTESTED: _S.UNCONFIRMED,
        _E.DEREFERENCED: _S.ABSENT,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.OVERDUE: _S.ABSENT,
        _E.NODE_LOST: _S.LOST,
        _E.NODE_AWAY: _S.LOST,
        _E.NODE_GIVEN_UP: _S.LOST,
        _E.EXPECTED: _S.AWAITED,
        _E.SWEPT: _S.ABSENT,
        _E.COPY_FAILED: _S.LOST,
    },
    _S.AWAITED: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_NEWER: _S.AWAITED,
        _E.MISMATCHED: _S.AWAITED,
        _E.ATTESTED: _S.UNCONFIRMED,
        _E.DEREFERENCED: _S.ABSENT,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.OVERDUE: _S.ABSENT,
        _E.NODE_LOST: _S.AWAITED,
        _E.NODE_AWAY: _S.AWAITED,
        _E.NODE_GIVEN_UP: _S.LOST,
        _E.EXPECTED: _S.AWAITED,
        _E.COPY_FAILED: _S.AWAITED,
    },
    _S.FREED: {
        _E.REPORTED_FREED: _S.FREED,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.FREED,
        _E.OVERDUE: _S.FREED,
        _E.NODE_LOST: _S.FREED,
        _E.NODE_AWAY: _S.FREED,
        _E.NODE_GIVEN_UP: _S.FREED,
        _E.RELEASED: _S.ABSENT,
        _E.COPY_FAILED: _S.FREED,
    },
    _S.DELETING: {
        _E.REPORTED: _S.LIVE,
        _E.REPORTED_UNREFERENCED: _S.UNREFERENCED,
        _E.REPORTED_FREED: _S.FREED,
        _E.REPORTED_NEWER: _S.DELETING,
        _E.MISMATCHED: _S.DELETING,
        _E.ATTESTED: _S.UNCONFIRMED,
        _E.DEREFERENCED: _S.DELETING,
        _E.REMOVED: _S.ABSENT,
        _E.FOUND_CORRUPT: _S.CORRUPT,
        _E.OVERDUE: _S.DELETING,
        _E.NODE_LOST: _S.ABSENT,
        _E.NODE_AWAY: _S.ABSENT,
        _E.NODE_GIVEN_UP: _S.DELETING,
        _E.LAPSED: _S.ABSENT,
        _E.COPY_FAILED: _S.DELETING,
    },
}


def follow(before: ReplicaState, event: ReplicaEvent) -> ReplicaState:
    """Return the state after an event. What the table does not have is a bug."""
    after = TRANSITIONS[before].get(event)
    assert after is not None, f"{event.name} of a replica that is {before.name}"
    return after
