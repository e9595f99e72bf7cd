"""Recent events of replicas and of their datanodes, to explain why a chunk is as it is. Pure.

Bounded: every write confirms its replicas, so that what is usual has a list of its own and does not push out what
is not. What datanodes list in full when they register is not kept, as there may be millions.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from peacefs.protocol.ids import ChunkId, NodeId

from .replica_states import ReplicaEvent

# Remembered events of single replicas, of usual ones and of others alike, and of whole datanodes; and how many of
# them are told of one chunk.
replica_events_kept_max: Final = 20_000
datanode_events_kept_max: Final = 1_000
replica_events_shown_max: Final = 50


#: The whole life of a replica with which all is well.
_USUAL: Final = frozenset(
    {
        ReplicaEvent.REPORTED,
        ReplicaEvent.REPORTED_UNREFERENCED,
        ReplicaEvent.ATTESTED,
        ReplicaEvent.REFERENCED,
        ReplicaEvent.DEREFERENCED,
        ReplicaEvent.RELEASED,
        ReplicaEvent.REMOVED,
    }
)


_Noted = tuple[float, ReplicaEvent, ChunkId, NodeId]


class Happened(NamedTuple):
    """An event, by the coordinator's monotonic clock."""

    at_s: float
    event: ReplicaEvent
    chunk: ChunkId
    node: NodeId


class ReplicaHistory:
    """The events of a while, those of all chunks in the order in which they happened."""

    def __init__(self) -> None:
        # Plain tuples: to make one with names takes as long as all else that an event costs.
        self._usual: deque[_Noted] = deque(maxlen=replica_events_kept_max)
        self._unusual: deque[_Noted] = deque(maxlen=replica_events_kept_max)
        self._of_datanodes: deque[Happened] = deque(maxlen=datanode_events_kept_max)

    def note(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        """Something happened to a replica, and everything that follows from it is done."""
        (self._usual if event in _USUAL else self._unusual).append((now_s, event, chunk, node))

    def note_listed(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        """A datanode named a replica in its full report."""

    def note_datanode(self, now_s: float, event: ReplicaEvent, node: NodeId) -> None:
        """Something happened to all replicas of a datanode."""
        self._of_datanodes.append(Happened(now_s, event, 0, node))

    def story(self, chunk: ChunkId) -> list[Happened]:
        """Return the last events of a chunk's replicas, the earliest first."""
        found = [Happened(*each) for events in (self._usual, self._unusual) for each in events if each[2] == chunk]
        found.sort(key=lambda each: each.at_s)
        return found[-replica_events_shown_max:]

    def of_datanode(self, node: NodeId) -> Happened | None:
        """Return what happened last to all replicas of a datanode."""
        return next((each for each in reversed(self._of_datanodes) if each.node == node), None)
