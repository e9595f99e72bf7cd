"""Pending load: chunks that were placed a moment ago and that no heartbeat of their datanodes reflects yet. Pure.

Each datanode reports with every heartbeat what it is receiving and sending, as in HDFS. Until its report can
include a placed chunk, the chunk is counted here, so that a burst spreads; a writer that never comes is no load
for longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from peacefs.protocol.ids import ChunkId, NodeId

# A placed chunk counts as load of its datanodes for so long, before they report it themselves.
pending_load_s: Final = 2.0


class PendingLoad:
    """Counted by node, so that placing a chunk need not look at all of them."""

    def __init__(self) -> None:
        #: By chunk: when, and through which nodes. Longest ago first.
        self._chunks: dict[ChunkId, tuple[float, tuple[NodeId, ...]]] = {}
        self._of_node: defaultdict[NodeId, int] = defaultdict(int)

    def add(self, now_s: float, chunk: ChunkId, nodes: Sequence[NodeId]) -> None:
        self.end(chunk)
        self._chunks[chunk] = now_s, tuple(nodes)
        for node in nodes:
            self._of_node[node] += 1

    def end(self, chunk: ChunkId) -> None:
        """It is written, or will not be. That it is forgotten already is fine."""
        _placed_s, nodes = self._chunks.pop(chunk, (0.0, ()))
        for node in nodes:
            self._of_node[node] -= 1

    def forget_old(self, now_s: float) -> None:
        """Those of longer ago than `pending_load_s`: by now their datanodes have spoken."""
        while self._chunks:
            chunk, (placed_s, _nodes) = next(iter(self._chunks.items()))
            if now_s - placed_s < pending_load_s:
                break
            self.end(chunk)

    def through(self, node: NodeId) -> int:
        """Return how many go through a node."""
        return self._of_node.get(node, 0)

    def through_all(self, nodes: Iterable[NodeId]) -> int:
        """Return the sum of how many go through each of the nodes."""
        return sum(map(self._of_node.__getitem__, nodes))

    def pipelines(self) -> Mapping[ChunkId, Sequence[NodeId]]:
        """The nodes of each, in the order of the pipeline."""
        return {chunk: nodes for chunk, (_placed_s, nodes) in self._chunks.items()}
