"""Recent events of replicas and of their datanodes, to explain why a chunk is as it is. Pure.

The history is bounded. Usual events, which every write causes, have a list of their own, so that they do not push
out unusual ones. Replicas in full reports are not recorded, because there may be millions.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from peacefs.protocol.ids import ChunkId, NodeId

from .replica_states import ReplicaEvent

# Maximum numbers: of replica events in each of the two lists, of datanode events, of events shown for one chunk.
replica_events_kept_max: Final = 20_000
datanode_events_kept_max: Final = 1_000
replica_events_shown_max: Final = 50


#: The events in the life of a healthy replica.
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
    """The recent events of all chunks, in the order in which they happened. `Cluster` adds them."""

    def __init__(self) -> None:
        # Plain tuples, because creating a named tuple would double the cost of an event.
        self._usual: deque[_Noted] = deque(maxlen=replica_events_kept_max)
        self._unusual: deque[_Noted] = deque(maxlen=replica_events_kept_max)
        self._of_datanodes: deque[Happened] = deque(maxlen=datanode_events_kept_max)

    def note(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        """Record an event of a replica, after its consequences are applied."""
        (self._usual if event in _USUAL else self._unusual).append((now_s, event, chunk, node))

    def note_listed(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        """Ignore a replica in a full report. Has the signature of `note`, to be used in its place."""

    def note_datanode(self, now_s: float, event: ReplicaEvent, node: NodeId) -> None:
        """Record an event that concerns all replicas of a datanode."""
        self._of_datanodes.append(Happened(now_s, event, 0, node))

    def story(self, chunk: ChunkId) -> list[Happened]:
        """Return the last events of a chunk's replicas, the earliest first."""
        found = [Happened(*each) for events in (self._usual, self._unusual) for each in events if each[2] == chunk]
        found.sort(key=lambda each: each.at_s)
        return found[-replica_events_shown_max:]

    def of_datanode(self, node: NodeId) -> Happened | None:
        """Return the last event that concerned all replicas of a datanode."""
        return next((each for each in reversed(self._of_datanodes) if each.node == node), None)
