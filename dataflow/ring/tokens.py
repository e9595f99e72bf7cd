"""The hash space of the ring: places of keys, tokens of nodes, and the intervals between them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Keys and tokens are between 0 and this, so that they fit into a signed word with room for sums.
RING: Final = 1 << 62

Hashes = NDArray[np.int64]


class Interval(NamedTuple):
    """Hashes from `low` up to, but excluding, `high`. Intervals do not wrap around the end of the ring."""

    low: int
    high: int

    def contains(self, other: Interval) -> bool:
        return self.low <= other.low and other.high <= self.high

    def overlaps(self, other: Interval) -> bool:
        return self.low < other.high and other.low < self.high

    @property
    def share(self) -> float:
        """The share of the ring, and so, if hashes are even, of the keys."""
        return (self.high - self.low) / RING


WHOLE: Final = Interval(0, RING)


def distance(start: int, end: int) -> int:
    """Return the clockwise distance from one place to another."""
    return (end - start) % RING


def halfway(start: int, end: int) -> int:
    """Return the middle of the clockwise arc between two places. Equal places stand for the whole ring."""
    return (start + (distance(start, end) or RING) // 2) % RING


def spread(words: NDArray[Any]) -> Hashes:
    """Map words of any kind to evenly distributed places on the ring (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(2)).astype(np.int64)
