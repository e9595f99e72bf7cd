"""The clock for checking tokens: the time of the coordinator that signed them, not this machine's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ClusterClock:
    """The coordinator's time, continued by a monotonic clock. Thread-safe.

    Before the first message from the coordinator, it is this machine's own time. All clocks are in seconds.
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
        """Set the coordinator's time. The delay of the message is ignored."""
        with self._lock:
            self._ahead_s = coordinators_s - self._monotonic()

    def now_s(self) -> float:
        with self._lock:
            return self._own_wall_clock() if self._ahead_s is None else self._monotonic() + self._ahead_s
