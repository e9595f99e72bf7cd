"""Measures during what share of the recent time a queue was not empty."""

from __future__ import annotations

from math import exp
from typing import Final

#: Time constant of the average: time this many seconds ago has a weight of 1/e.
_REMEMBERED_S: Final = 60.0


class Saturation:
    """The share of the last minute in which something waited, for TimelyPolicy.

    A cluster that keeps up with its load empties its queue again and again; an overloaded cluster never does.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._waited = False
        self._seen_s: float | None = None

    def see(self, now_s: float, *, waits: bool) -> None:
        """Record whether something waits from now on."""
        if self._seen_s is not None:
            weight = 1.0 - exp(-(now_s - self._seen_s) / _REMEMBERED_S)
            self.share += weight * (self._waited - self.share)
        self._seen_s, self._waited = now_s, waits
