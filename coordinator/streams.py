"""Chunks that are being written: through which datanodes, and until when. Pure.

A stream ends when its file is published, when its writer gives it up, or when its token has expired.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence, Set

from peacefs.protocol.ids import ChunkId, NodeId

_SLACK = 1000


class Streams:
    """Counted by node, so that placing a chunk need not look at all of them."""

    def __init__(self) -> None:
        self._nodes: dict[ChunkId, tuple[NodeId, ...]] = {}
        self._of_node: Counter[NodeId] = Counter()
        #: In order, for all tokens live equally long. Also those that have ended since.
        self._deadlines: deque[tuple[float, ChunkId]] = deque()

    def open(self, chunk: ChunkId, nodes: Sequence[NodeId], deadline_s: float) -> None:
        self._nodes[chunk] = tuple(nodes)
        self._of_node.update(nodes)
        self._deadlines.append((deadline_s, chunk))
        if len(self._deadlines) > 2 * len(self._nodes) + _SLACK:
            self._deadlines = deque(entry for entry in self._deadlines if entry[1] in self._nodes)

    def close(self, chunk: ChunkId) -> None:
        """That it has ended already is fine."""
        self._of_node.subtract(self._nodes.pop(chunk, ()))

    def close_overdue(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            self.close(self._deadlines.popleft()[1])

    def pipelines(self) -> list[list[NodeId]]:
        """The nodes of each, in the order of the pipeline."""
        return [list(nodes) for nodes in self._nodes.values()]

    @property
    def chunks(self) -> Set[ChunkId]:
        return self._nodes.keys()

    def through(self, node: NodeId) -> int:
        """How many go through a node."""
        return self._of_node[node]
