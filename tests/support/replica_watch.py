"""Checks every event of a replica, and the lists that contain it, against the table of transitions."""

from __future__ import annotations

from collections.abc import Callable

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.replica_history import ReplicaHistory
from peacefs.coordinator.cluster.replica_states import TRANSITIONS, ReplicaEvent, ReplicaState, follow
from peacefs.protocol.ids import ChunkId, NodeId

#: Events of a replica caused by time. No message names the replica.
_SILENT = {ReplicaState.LOST: ReplicaEvent.SWEPT, ReplicaState.DELETING: ReplicaEvent.LAPSED}
_COMPARED_MAX = 2_000


class ReplicaWatch(ReplicaHistory):
    """Records a cluster's history, and tracks the state of each replica by the table alone."""

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        super().__init__()
        self._cluster = cluster
        self._states: dict[tuple[ChunkId, NodeId], ReplicaState] = {}
        #: Transitions that have occurred.
        self.seen: set[tuple[ReplicaState, ReplicaEvent]] = set()
        #: Called for each transition: chunk, datanode, state before, event, state after.
        self.tell: Callable[[ChunkId, NodeId, ReplicaState, ReplicaEvent, ReplicaState], None] | None = None

    def note(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        super().note(now_s, event, chunk, node)
        self._follow(event, chunk, node)

    def note_listed(self, now_s: float, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        self._follow(event, chunk, node)

    def note_datanode(self, now_s: float, event: ReplicaEvent, node: NodeId) -> None:
        super().note_datanode(now_s, event, node)
        for chunk in [chunk for chunk, of in self._states if of == node]:
            if self._has_gone_silently(chunk, node):
                self._become(chunk, node, ReplicaState.ABSENT)
            else:
                self._follow(event, chunk, node)

    def compare(self) -> None:
        """Check that nothing changed without an event, except by time. Too slow for very many replicas."""
        cluster = self._cluster()
        if len(self._states) > _COMPARED_MAX:
            return
        state_of = cluster.replicas.state
        changed = [
            (chunk, node, before, now)
            for (chunk, node), before in self._states.items()
            if (now := state_of(chunk, node)) is not before
        ]
        for chunk, node, before, now in changed:
            self._become(chunk, node, self._settled(before, now))
        for member in cluster.members.all():
            for chunk in cluster.chunks.chunks_of(member.id):
                assert (chunk, member.id) in self._states, f"{member.id} came to hold {chunk} without an event"
        for node, replica in cluster.chunks.unreferenced.replicas():
            assert self._states[replica.chunk, node] is ReplicaState.UNREFERENCED

    def _has_gone_silently(self, chunk: ChunkId, node: NodeId) -> bool:
        """Return whether time alone has removed a replica from the lists since the last comparison."""
        return (
            self._states[chunk, node] in _SILENT
            and self._cluster().replicas.state(chunk, node) is ReplicaState.ABSENT
        )

    @staticmethod
    def _settled(before: ReplicaState, now: ReplicaState) -> ReplicaState:
        if before in _SILENT:
            before = follow(before, _SILENT[before])
        assert before is now, f"a replica that was {before.name} is {now.name} without an event"
        return now

    def _follow(self, event: ReplicaEvent, chunk: ChunkId, node: NodeId) -> None:
        before = self._states.get((chunk, node), ReplicaState.ABSENT)
        now = self._cluster().replicas.state(chunk, node)
        if before in _SILENT and TRANSITIONS[before].get(event) is not now:
            before = follow(before, _SILENT[before])
        after = follow(before, event)
        assert after is now, f"{event.name} makes {after.name} of {before.name}, and the lists say {now.name}"
        self.seen.add((before, event))
        if self.tell is not None:
            self.tell(chunk, node, before, event, after)
        self._become(chunk, node, after)

    def _become(self, chunk: ChunkId, node: NodeId, state: ReplicaState) -> None:
        if state is ReplicaState.ABSENT:
            self._states.pop((chunk, node), None)
        else:
            self._states[chunk, node] = state
