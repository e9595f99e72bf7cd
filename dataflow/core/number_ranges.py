"""Sets of sequence numbers, stored as ranges: numbers that arrive in order take one entry, however many."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class NumberRanges:
    """Ranges with inclusive ends, in order, disjoint and never adjacent."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        if first > last:
            return
        # Merge [first, last] with the ranges that overlap or touch it.
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def remove_above(self, number: int) -> None:
        keep = bisect_right(self._firsts, number)
        del self._firsts[keep:], self._lasts[keep:]
        if self._lasts:
            self._lasts[-1] = min(self._lasts[-1], number)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._lasts, number)
        return at < len(self._firsts) and self._firsts[at] <= number

    def covers(self, first: int, last: int) -> bool:
        """Return True if all numbers from `first` to `last` are in the set."""
        at = bisect_left(self._lasts, first)
        return at < len(self._firsts) and self._firsts[at] <= first and last <= self._lasts[at]

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between `first` and `last` that are not in the set, in order."""
        at = bisect_left(self._lasts, first)
        while first <= last:
            if at == len(self._firsts) or self._firsts[at] > last:
                yield first, last
                return
            if first < self._firsts[at]:
                yield first, self._firsts[at] - 1
            first = self._lasts[at] + 1
            at += 1

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def from_first(self) -> int:
        """The number up to which all numbers from 1 are in the set."""
        return self._lasts[0] if self._firsts and self._firsts[0] == 1 else 0

    @property
    def highest(self) -> int:
        """The highest number of the set; 0 if it is empty."""
        return self._lasts[-1] if self._lasts else 0
