"""Coverage: for each mapper the number up to which a state contains its batches.

Mappers number their batches, and each interval receives its part of them in order. So one number per mapper is
enough.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from .tokens import RING, Interval

Coverage = Mapping[str, int]


def contains(later: Coverage, earlier: Coverage) -> bool:
    """Return True if `later` contains everything that `earlier` contains."""
    return all(later.get(mapper, 0) >= number for mapper, number in earlier.items())


class RingCoverage:
    """The coverage of the whole ring, by place: what a sink has received of each mapper."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Interval, int]]] = {}

    def span(self, mapper: str, interval: Interval) -> tuple[int, int]:
        """Return the lowest and the highest number of the places in an interval."""
        parts, begin, end = self._within(mapper, interval)
        numbers = [number for _, number in parts[begin:end]]
        return min(numbers), max(numbers)

    def raise_to(self, mapper: str, interval: Interval, number: int) -> None:
        """Note that an interval has all batches up to a number."""
        parts, begin, end = self._within(mapper, interval)
        # Include the neighbours, so that adjacent parts with the same number are merged.
        begin, end = max(begin - 1, 0), min(end + 1, len(parts))
        made: list[tuple[Interval, int]] = []
        for part, had in parts[begin:end]:
            for piece, value in _cut(part, interval, had, number):
                if made and made[-1][1] == value:
                    made[-1] = (Interval(made[-1][0].low, piece.high), value)
                else:
                    made.append((piece, value))
        parts[begin:end] = made

    def lowest(self, mapper: str) -> int:
        """Return the number up to which the whole ring has all batches of a mapper."""
        return min(number for _, number in self._of(mapper))

    def complete(self, lasts: Coverage) -> bool:
        """Return True if every place has everything up to the last batch of each mapper."""
        return all(number >= last for mapper, last in lasts.items() for _, number in self._of(mapper))

    def _within(self, mapper: str, interval: Interval) -> tuple[list[tuple[Interval, int]], int, int]:
        """Return the parts of a mapper, and the range of those that overlap an interval."""
        parts = self._of(mapper)
        begin = bisect_right(parts, interval.low, key=lambda part: part[0].low) - 1
        return parts, begin, bisect_left(parts, interval.high, key=lambda part: part[0].low)

    def _of(self, mapper: str) -> list[tuple[Interval, int]]:
        return self._parts.setdefault(mapper, [(Interval(0, RING), 0)])


def _cut(part: Interval, interval: Interval, had: int, number: int) -> Iterable[tuple[Interval, int]]:
    if not part.overlaps(interval):
        yield part, had
        return
    if part.low < interval.low:
        yield Interval(part.low, interval.low), had
    yield Interval(max(part.low, interval.low), min(part.high, interval.high)), max(had, number)
    if interval.high < part.high:
        yield Interval(interval.high, part.high), had
