"""Replicas that somebody else has told of than the datanode that is to hold them. Pure.

A completion brings receipts, and whoever has made a copy says so; both may be long under way. Meanwhile the
datanode may have lost the replica and said so, which nobody understood: the chunk was not known yet. So what
is told is believed only until the datanode itself must have told it.
"""

from __future__ import annotations

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import unconfirmed_replica_kept_s

UnconfirmedReplica = tuple[NodeId, ChunkId]


class UnconfirmedReplicas:
    """What has not been confirmed yet, longest ago first."""

    def __init__(self) -> None:
        self._reported_s: dict[UnconfirmedReplica, float] = {}

    def __len__(self) -> int:
        return len(self._reported_s)

    def has(self, node: NodeId, chunk: ChunkId) -> bool:
        """Return whether the datanode is still to say it itself."""
        return (node, chunk) in self._reported_s

    def add(self, now_s: float, node: NodeId, chunk: ChunkId) -> None:
        self._reported_s.pop((node, chunk), None)
        self._reported_s[node, chunk] = now_s

    def confirm(self, node: NodeId, chunk: ChunkId) -> None:
        """The datanode has said it itself."""
        self._reported_s.pop((node, chunk), None)

    def overdue(self, now_s: float) -> list[UnconfirmedReplica]:
        """What its datanode should have confirmed by now."""
        overdue = []
        for replica, reported_s in self._reported_s.items():
            if now_s - reported_s < unconfirmed_replica_kept_s:
                break
            overdue.append(replica)
        return overdue
