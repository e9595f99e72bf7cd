"""Pending load: chunks that were placed a moment ago and that no heartbeat of their datanodes reflects yet. Pure.

As in HDFS, each heartbeat reports what the datanode is receiving and sending. A placed chunk is counted here until
a heartbeat can include it, so that a burst spreads over datanodes. After `pending_load_s` a placed chunk no longer
counts, even if its writer never came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from peacefs.protocol.ids import ChunkId, NodeId

# A placed chunk counts as load of its datanodes for this long. Then their heartbeats include it.
pending_load_s: Final = 2.0


class PendingLoad:
    """The placed chunks, also counted by node, so that placing a chunk need not go through all of them."""

    def __init__(self) -> None:
        #: When each chunk was placed, and its nodes. The oldest comes first.
        self._chunks: dict[ChunkId, tuple[float, tuple[NodeId, ...]]] = {}
        self._of_node: defaultdict[NodeId, int] = defaultdict(int)

    def add(self, now_s: float, chunk: ChunkId, nodes: Sequence[NodeId]) -> None:
        self.end(chunk)
        self._chunks[chunk] = now_s, tuple(nodes)
        for node in nodes:
            self._of_node[node] += 1

    def end(self, chunk: ChunkId) -> None:
        """Stop counting a chunk that is written, or never will be. Does nothing if it is forgotten already."""
        _placed_s, nodes = self._chunks.pop(chunk, (0.0, ()))
        for node in nodes:
            self._of_node[node] -= 1

    def forget_old(self, now_s: float) -> None:
        """Forget chunks placed more than `pending_load_s` ago: by now the heartbeats include them."""
        while self._chunks:
            chunk, (placed_s, _nodes) = next(iter(self._chunks.items()))
            if now_s - placed_s < pending_load_s:
                break
            self.end(chunk)

    def through(self, node: NodeId) -> int:
        """Return how many placed chunks go through a node."""
        return self._of_node.get(node, 0)

    def through_all(self, nodes: Iterable[NodeId]) -> int:
        """Return the sum of `through` over the nodes."""
        return sum(map(self._of_node.__getitem__, nodes))

    def pipelines(self) -> Mapping[ChunkId, Sequence[NodeId]]:
        """Return the nodes of each placed chunk, in the order of the pipeline."""
        return {chunk: nodes for chunk, (_placed_s, nodes) in self._chunks.items()}
