"""Queue of chunks with fewer good replicas than wanted, those with the fewest left first. Pure.

Among chunks with as many replicas left, the one examined longest ago comes first. So a chunk that cannot be copied
now does not block others that perhaps can.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from peacefs.protocol.ids import ChunkId


class LowRedundancyQueue:
    """A set of chunks, ordered by the number of good replicas left."""

    def __init__(self) -> None:
        self._left: dict[ChunkId, int] = {}
        self._by_left: dict[int, dict[ChunkId, None]] = {}

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._left

    def __iter__(self) -> Iterator[ChunkId]:
        """Iterate over the chunks, those with the fewest replicas left first."""
        for left in sorted(self._by_left):
            yield from self._by_left[left]

    def mark(self, chunk: ChunkId, left: int) -> None:
        """Add a chunk that has `left` good replicas and should have more, or change its number."""
        if self._left.get(chunk) == left:
            return
        self.discard(chunk)
        self._left[chunk] = left
        self._by_left.setdefault(left, {})[chunk] = None

    def discard(self, chunk: ChunkId) -> None:
        """Remove a chunk if it is in the set."""
        left = self._left.pop(chunk, None)
        if left is None:
            return
        del self._by_left[left][chunk]
        # Free the memory: an emptied dictionary keeps its table, which held all chunks at the start.
        if not self._by_left[left]:
            del self._by_left[left]
        if not self._left:
            self._left = {}

    def with_left(self, left: int) -> int:
        """Return how many chunks have `left` replicas left."""
        return len(self._by_left.get(left, ()))

    def first(self, limit: int, but: Container[ChunkId]) -> list[ChunkId]:
        """Return the first chunks that are not in `but`, up to `limit`."""
        return list(islice((chunk for chunk in self if chunk not in but), limit))

    def postpone(self, chunk: ChunkId) -> None:
        """Move a chunk behind all others that have as many replicas left."""
        equals = self._by_left[self._left[chunk]]
        del equals[chunk]
        equals[chunk] = None
