"""How long write sets waited for their first grant of late, and how long chunks took. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: How much of the past counts: the last so many of each.
_REMEMBERED = 1000
#: What a chunk is thought to take before any has ended: 64 MiB at half of a gigabit.
_FIRST_GUESS_S = 1.0
_WEIGHT_OF_LATEST = 0.1


@dataclass
class WaitingTimes:
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
