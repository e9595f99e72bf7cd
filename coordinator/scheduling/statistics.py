"""Statistics of the scheduling service: waiting times, chunk durations, and the fast lane. Pure.

Chunks in the fast lane are so small that they wait for no grant; they are only counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from peacefs.protocol.limits import fast_lane_bytes_max

#: Statistics cover the last so many events of each kind.
_REMEMBERED = 1000
#: The assumed time for a chunk before any has ended: 64 MiB at half of a gigabit.
_FIRST_GUESS_S = 1.0
_WEIGHT_OF_LATEST = 0.1


@dataclass
class WaitingStatistics:
    """Seconds. `grant_s` is a moving mean of the time from a grant to its end; totals are since the start."""

    grant_s: float = _FIRST_GUESS_S
    granted_total: int = 0
    lapsed_total: int = 0
    _waited: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def waited(self, seconds: float) -> None:
        """A set got its first grant."""
        self._waited.append(seconds)

    def took(self, seconds: float) -> None:
        """A chunk was written."""
        self.grant_s += _WEIGHT_OF_LATEST * (seconds - self.grant_s)

    def quantile(self, share: float) -> float:
        """The waiting time that this share of the sets did not exceed; 0 before any was granted."""
        ordered = sorted(self._waited)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass
class FastLane:
    """Since the start, counted when their file is published; bytes as their writers sent them, once."""

    chunks_total: int = 0
    bytes_total: int = 0

    def published(self, lengths: Iterable[int]) -> None:
        """Chunks of these lengths belong to a file now; larger ones were granted."""
        for length in lengths:
            if length <= fast_lane_bytes_max:
                self.chunks_total += 1
                self.bytes_total += length
