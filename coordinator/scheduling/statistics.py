"""Statistics of the scheduling service: waiting times, chunk durations, and the fast lane. Pure.

Chunks in the fast lane are so small that they need no grant; they are only counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from peacefs.protocol.limits import fast_lane_bytes_max

#: The number of recent waiting times that quantiles cover.
_REMEMBERED = 1000
#: The assumed duration of a chunk before any chunk has ended: 64 MiB at half a gigabit per second.
_FIRST_GUESS_S = 1.0
_WEIGHT_OF_LATEST = 0.1


@dataclass
class WaitingStatistics:
    """Waiting times in seconds. `grant_s` is a moving mean from grant to end. Totals count from the start."""

    grant_s: float = _FIRST_GUESS_S
    granted_total: int = 0
    lapsed_total: int = 0
    _waited: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def waited(self, seconds: float) -> None:
        """Record how long a set waited for its first grant."""
        self._waited.append(seconds)

    def took(self, seconds: float) -> None:
        """Record the duration of a chunk from its grant to its end."""
        self.grant_s += _WEIGHT_OF_LATEST * (seconds - self.grant_s)

    def quantile(self, share: float) -> float:
        """Return the waiting time that this share of the sets did not exceed; 0 before the first grant."""
        ordered = sorted(self._waited)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass
class FastLane:
    """Totals since the start. Chunks count when their file is published; bytes count once, not per replica.

    `published_bytes_total` covers all chunks, the other totals only small ones.
    """

    chunks_total: int = 0
    bytes_total: int = 0
    published_bytes_total: int = 0

    def published(self, lengths: Iterable[int]) -> None:
        """Count the small chunks of a published file, given the lengths of all its chunks."""
        for length in lengths:
            self.published_bytes_total += length
            if length <= fast_lane_bytes_max:
                self.chunks_total += 1
                self.bytes_total += length
