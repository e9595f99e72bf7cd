"""Which bytes of a file a disk is asked for before its reader gets there: so it is busy while they are used."""

from __future__ import annotations

from peacefs.protocol.limits import readahead_bytes


class ReadingAhead:
    """Of one reader, who goes from front to back."""

    __slots__ = ("_to",)

    def __init__(self) -> None:
        self._to = 0

    def due(self, at: int, end: int) -> tuple[int, int] | None:
        """What to ask for now, an offset and a length, by a reader at `at` who goes to `end`; None for nothing."""
        start = max(at, self._to)
        if start >= end or at + readahead_bytes <= self._to:
            return None
        self._to = min(at + 2 * readahead_bytes, end)
        return start, self._to - start
