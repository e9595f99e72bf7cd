"""Chooses the bytes to prefetch from a file, so that the disk stays busy."""

from __future__ import annotations

from typing import Final

from peacefs.protocol.limits import MIB

# Number of bytes of a large chunk that are prefetched ahead of a reader.
readahead_bytes: Final = 4 * MIB


class ReadingAhead:
    """The read-ahead of one sequential reader."""

    __slots__ = ("_to",)

    def __init__(self) -> None:
        self._to = 0

    def due(self, at: int, end: int) -> tuple[int, int] | None:
        """Return the (offset, length) to prefetch now, for a reader at `at` that reads to `end`, or None."""
        start = max(at, self._to)
        if start >= end or at + readahead_bytes <= self._to:
            return None
        self._to = min(at + 2 * readahead_bytes, end)
        return start, self._to - start
