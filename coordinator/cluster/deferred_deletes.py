"""Chunks that a writer has replaced by larger ones with the same bytes, kept while readers may need them. Pure.

A reader that has the layout of a file goes on reading by it. So the replicas stay, after the commit that replaced
them, for as long as tokens that were issued before can be renewed. A restarted coordinator has forgotten these
chunks; then that commit keeps them from garbage collection for as long (`Transaction.keep_chunk`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.protocol.limits import read_token_renewable_s

# The maximum number of replaced chunks that are kept for readers.
deferred_deletes_max: Final = 1_000_000


class DeferredDeletes:
    """A queue of replaced chunks, in the order in which they were replaced."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, ChunkRecord]] = deque()

    def add(self, now_s: float, records: Sequence[ChunkRecord]) -> list[ChunkRecord]:
        """Add chunks; return those to delete now because too many wait."""
        self._waiting.extend((now_s, record) for record in records)
        return [self._waiting.popleft()[1] for _ in range(len(self._waiting) - deferred_deletes_max)]

    def due(self, now_s: float) -> list[ChunkRecord]:
        """Remove and return the chunks that have waited long enough."""
        due = []
        while self._waiting and now_s - self._waiting[0][0] >= read_token_renewable_s:
            due.append(self._waiting.popleft()[1])
        return due
