"""Replicas reported by someone other than the datanode that should hold them, until that datanode confirms. Pure.

A completion brings receipts, and the source of a copy reports the copy. Both reports may be delayed. Meanwhile the
datanode may have lost the replica, and have reported the loss before the coordinator knew the chunk. So such a
replica counts only for the time in which the datanode must have reported it.
"""

from __future__ import annotations

from peacefs.coordinator.limits import unconfirmed_replica_kept_s
from peacefs.protocol.ids import ChunkId, NodeId

UnconfirmedReplica = tuple[NodeId, ChunkId]


class UnconfirmedReplicas:
    """Replicas that wait for confirmation, the oldest report first."""

    def __init__(self) -> None:
        self._reported_s: dict[UnconfirmedReplica, float] = {}

    def __len__(self) -> int:
        return len(self._reported_s)

    def has(self, node: NodeId, chunk: ChunkId) -> bool:
        """Return whether the datanode has yet to confirm the replica."""
        return (node, chunk) in self._reported_s

    def add(self, now_s: float, node: NodeId, chunk: ChunkId) -> None:
        self._reported_s.pop((node, chunk), None)
        self._reported_s[node, chunk] = now_s

    def confirm(self, node: NodeId, chunk: ChunkId) -> None:
        """Forget a replica that its datanode has reported itself."""
        self._reported_s.pop((node, chunk), None)

    def overdue(self, now_s: float) -> list[UnconfirmedReplica]:
        """Return the replicas that their datanodes should have confirmed by now."""
        overdue = []
        for replica, reported_s in self._reported_s.items():
            if now_s - reported_s < unconfirmed_replica_kept_s:
                break
            overdue.append(replica)
        return overdue
