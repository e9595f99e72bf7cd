"""Limits the rate at which a datanode sends copies: one budget for all copies, first come, first served.

A token bucket, stored as the time at which everything reserved will have been sent. Thread-safe. Never waits.
"""

from __future__ import annotations

import threading
from typing import Final

from peacefs.protocol.limits import MIB

copy_burst_bytes: Final = 4 * MIB


class CopyBudget:
    """A rate limit for one datanode. After idle time, up to `burst_bytes` may be sent at once."""

    def __init__(self, bytes_per_second: float, burst_bytes: int = copy_burst_bytes) -> None:
        assert bytes_per_second > 0, "a budget of nothing is a repair that never ends"
        self._bytes_per_second = bytes_per_second
        self._burst_s = burst_bytes / bytes_per_second
        self._lock = threading.Lock()
        #: The time when everything reserved will have been sent; None before the first reservation.
        self._spent_until_s: float | None = None

    def reserve(self, now_s: float, size: int) -> float:
        """Reserve `size` bytes. Return the time from which they may be sent: `now_s` if within the budget."""
        with self._lock:
            earliest_s = now_s - self._burst_s
            start_s = earliest_s if self._spent_until_s is None else max(earliest_s, self._spent_until_s)
            self._spent_until_s = start_s + size / self._bytes_per_second
            return max(now_s, self._spent_until_s)
