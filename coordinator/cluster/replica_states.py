"""The states of a replica (one chunk on one datanode) as the coordinator sees it, as a table. Pure.

    after = TRANSITIONS[before][event]        an event that is missing cannot happen in that state

No replica stores its state. It follows from which collection has the replica: `chunk_map`, `unreferenced_chunks`,
`transient_chunks` or `repair` (see `replica_lookup`). `chunk_map` applies the table; the simulated cluster of the
tests checks the events of all replicas against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Final


class ReplicaState(IntEnum):
    """The state of a replica. Readers are sent to `UNCONFIRMED`, `LIVE` and `FREED` replicas."""

    #: The datanode has no replica, as far as the coordinator knows.
    ABSENT = auto()
    #: The datanode has a replica, and no file refers to the chunk: it is being written, or the write failed.
    UNREFERENCED = auto()
    #: Reported by a receipt or by the source of a copy; the datanode has not confirmed it yet.
    UNCONFIRMED = auto()
    #: Reported by the datanode itself.
    LIVE = auto()
    #: The replica does not match its checksums. It stays until others have proven that they hold the same.
    CORRUPT = auto()
    #: The datanode is dead, or has registered again and not reported the replica yet.
    LOST = auto()
    #: The datanode is down for maintenance and should come back with the replica.
    AWAITED = auto()
    #: No file refers to the chunk any more. The replica stays briefly for readers that have the file open.
    FREED = auto()
    #: The datanode was told to delete the replica, because others hold the same, and has not confirmed that.
    DELETING = auto()


class ReplicaEvent(IntEnum):
    #: The datanode reports the replica: of a file's chunk; of a chunk without a file; of a freed chunk.
    REPORTED = auto()
    REPORTED_UNREFERENCED = auto()
    REPORTED_FREED = auto()
    #: The datanode reports a newer version than the file's: its completion has not arrived yet.
    REPORTED_NEWER = auto()
    #: The datanode reports an older version than the file's, or another length, and is told to delete it.
    MISMATCHED = auto()
    #: Another service says that the datanode has the replica.
    ATTESTED = auto()
    #: A file refers to the chunk now.
    REFERENCED = auto()
    #: No file refers to the chunk any more.
    DEREFERENCED = auto()
    #: The datanode reports that the replica is gone.
    REMOVED = auto()
    #: The datanode reports that the replica is corrupt.
    FOUND_CORRUPT = auto()
    #: The datanode has not confirmed in time a replica that others reported.
    OVERDUE = auto()
    #: The datanode died or registers again; is away for maintenance; was awaited for too long.
    NODE_LOST = auto()
    NODE_AWAY = auto()
    NODE_GIVEN_UP = auto()
    #: The metadata names the replica at the start, and its datanode is down for maintenance.
    EXPECTED = auto()
    #: A replica of a lost datanode is removed from the lists.
    SWEPT = auto()
    #: The datanode is told to delete the replica: the writer abandoned the chunk; it is below the GC floor; its
    #: readers had enough time; other datanodes have proven that they hold the same.
    ABANDONED = auto()
    GARBAGE = auto()
    RELEASED = auto()
    EXCESS = auto()
    #: The deletion was not confirmed in time.
    LAPSED = auto()
    #: A copy to the datanode was ordered; it failed.
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
    """Return the state after an event. An event that the table does not have is a bug."""
    after = TRANSITIONS[before].get(event)
    assert after is not None, f"{event.name} of a replica that is {before.name}"
    return after
