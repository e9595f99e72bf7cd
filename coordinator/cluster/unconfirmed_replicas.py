"""Replicas reported by someone other than the datanode that should hold them, until that datanode confirms. Pure.

A completion brings receipts, and whoever has made a copy reports it; both may be long under way. Meanwhile the
datanode may have lost the replica and reported the loss while the coordinator did not know the chunk yet. So such
a replica counts only until the datanode itself must have reported it.
"""

from __future__ import annotations

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import hearsay_believed_s

Told = tuple[NodeId, ChunkId]


class Hearsay:
    """What has not been confirmed yet, longest ago first."""

    def __init__(self) -> None:
        self._told_s: dict[Told, float] = {}

    def __len__(self) -> int:
        return len(self._told_s)

    def tell(self, now_s: float, node: NodeId, chunk: ChunkId) -> None:
        self._told_s.pop((node, chunk), None)
        self._told_s[node, chunk] = now_s

    def confirm(self, node: NodeId, chunk: ChunkId) -> None:
        """The datanode has said it itself."""
        self._told_s.pop((node, chunk), None)

    def take_overdue(self, now_s: float) -> list[Told]:
        """What its datanode should have confirmed by now."""
        overdue = []
        for told, told_s in self._told_s.items():
            if now_s - told_s < hearsay_believed_s:
                break
            overdue.append(told)
        for told in overdue:
            del self._told_s[told]
        return overdue
