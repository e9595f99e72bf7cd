"""Chunks with fewer good replicas than wanted, those with the fewest left first. Pure.

Among equals it is the one that has waited longest since it was last looked at: a chunk that cannot be copied now
stands behind those that perhaps can.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from peacefs.protocol.ids import ChunkId


class LowRedundancyQueue:
    """An ordered set; the order is by replicas left."""

    def __init__(self) -> None:
        self._left: dict[ChunkId, int] = {}
        self._by_left: dict[int, dict[ChunkId, None]] = {}

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._left

    def __iter__(self) -> Iterator[ChunkId]:
        """The most endangered first."""
        for left in sorted(self._by_left):
            yield from self._by_left[left]

    def mark(self, chunk: ChunkId, left: int) -> None:
        """A chunk has `left` good replicas and should have more."""
        if self._left.get(chunk) == left:
            return
        self.discard(chunk)
        self._left[chunk] = left
        self._by_left.setdefault(left, {})[chunk] = None

    def discard(self, chunk: ChunkId) -> None:
        """Remove a chunk; one that is not in the set is fine."""
        left = self._left.pop(chunk, None)
        if left is None:
            return
        del self._by_left[left][chunk]
        # A dictionary that has become empty keeps the memory of what was in it: at a start, of all chunks.
        if not self._by_left[left]:
            del self._by_left[left]
        if not self._left:
            self._left = {}

    def with_left(self, left: int) -> int:
        """Return how many chunks have so many replicas left."""
        return len(self._by_left.get(left, ()))

    def first(self, limit: int, but: Container[ChunkId]) -> list[ChunkId]:
        """Up to `limit` of the most endangered that are not among `but`."""
        return list(islice((chunk for chunk in self if chunk not in but), limit))

    def postpone(self, chunk: ChunkId) -> None:
        """Behind all that have as many replicas left."""
        equals = self._by_left[self._left[chunk]]
        del equals[chunk]
        equals[chunk] = None
