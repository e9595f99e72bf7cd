"""The time that tokens are judged by: the coordinator's, which signed them, whatever this machine's clock says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ClusterClock:
    """The coordinator's time, carried on by a clock that does not jump. Thread-safe.

    Until the coordinator has been heard it is this machine's own. All clocks are in seconds.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        own_wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._own_wall_clock = own_wall_clock
        self._lock = threading.Lock()
        self._ahead_s: float | None = None

    def heard(self, coordinators_s: float) -> None:
        """Note the coordinator's time; the way here is short."""
        with self._lock:
            self._ahead_s = coordinators_s - self._monotonic()

    def now_s(self) -> float:
        with self._lock:
            return self._own_wall_clock() if self._ahead_s is None else self._monotonic() + self._ahead_s
