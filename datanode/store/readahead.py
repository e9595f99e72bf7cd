"""Choose the bytes to prefetch from a file before its reader gets there, so that the disk stays busy."""

from __future__ import annotations

from typing import Final

from peacefs.protocol.limits import MIB

# The disk is asked for so much of a large chunk before a reader gets there.
readahead_bytes: Final = 4 * MIB


class ReadingAhead:
    """The read-ahead of one reader that goes from front to back."""

    __slots__ = ("_to",)

    def __init__(self) -> None:
        self._to = 0

    def due(self, at: int, end: int) -> tuple[int, int] | None:
        """Return the range to prefetch now, as offset and length, for a reader at `at` that goes to `end`; None
        for nothing.
        """
        start = max(at, self._to)
        if start >= end or at + readahead_bytes <= self._to:
            return None
        self._to = min(at + 2 * readahead_bytes, end)
        return start, self._to - start
