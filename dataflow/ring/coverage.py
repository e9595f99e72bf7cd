"""Coverage: for each mapper the number up to which its batches are contained in a state.

Mappers number their batches, and each interval gets its part of them in their order, so one number says it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .tokens import RING, Interval

Coverage = Mapping[str, int]


def contains(later: Coverage, earlier: Coverage) -> bool:
    """Return whether all that one contains is in the other."""
    return all(later.get(mapper, 0) >= number for mapper, number in earlier.items())


class RingCoverage:
    """Coverage of the whole ring, place by place: what a sink has had of each mapper."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Interval, int]]] = {}

    def span(self, mapper: str, interval: Interval) -> tuple[int, int]:
        """Return the lowest and the highest number that the places of an interval have."""
        numbers = [number for part, number in self._of(mapper) if part.overlaps(interval)]
        return min(numbers), max(numbers)

    def raise_to(self, mapper: str, interval: Interval, number: int) -> None:
        """Note that an interval has all batches up to a number."""
        made: list[tuple[Interval, int]] = []
        for part, had in self._of(mapper):
            for piece, value in _cut(part, interval, had, number):
                if made and made[-1][1] == value and made[-1][0].high == piece.low:
                    made[-1] = (Interval(made[-1][0].low, piece.high), value)
                else:
                    made.append((piece, value))
        self._parts[mapper] = made

    def lowest(self, mapper: str) -> int:
        """Return the number up to which the whole ring has all batches of a mapper."""
        return min(number for _, number in self._of(mapper))

    def complete(self, lasts: Coverage) -> bool:
        """Return whether every place has everything up to the last batch of each mapper."""
        return all(number >= last for mapper, last in lasts.items() for _, number in self._of(mapper))

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
