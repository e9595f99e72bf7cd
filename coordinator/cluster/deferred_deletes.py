"""Chunks that a writer has replaced by larger ones with the same bytes, until nobody can read them any more. Pure.

A reader that has the layout of a file goes on reading by it. So their replicas are dropped, after the commit that
replaced them, as late as a token may be renewed that was given before. A coordinator that restarts has forgotten
them: datanodes hold them then for no file, and they are kept by that commit for as long
(`Transaction.keep_chunk`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.protocol.limits import read_token_renewable_s

# Pieces that were written anew wait for readers that know them, while their tokens are renewed, up to this many.
deferred_deletes_max: Final = 1_000_000


class DeferredDeletes:
    """In the order in which they were replaced."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, ChunkRecord]] = deque()

    def add(self, now_s: float, records: Sequence[ChunkRecord]) -> list[ChunkRecord]:
        """Add chunks; return those to delete now because too many wait."""
        self._waiting.extend((now_s, record) for record in records)
        return [self._waiting.popleft()[1] for _ in range(len(self._waiting) - deferred_deletes_max)]

    def due(self, now_s: float) -> list[ChunkRecord]:
        """Return the chunks that have waited for long enough."""
        due = []
        while self._waiting and now_s - self._waiting[0][0] >= read_token_renewable_s:
            due.append(self._waiting.popleft()[1])
        return due
