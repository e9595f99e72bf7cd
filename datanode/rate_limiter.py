"""Limit the rate at which a datanode sends copies: one budget for all of them, first come, first served.

A token bucket, kept as the moment at which all that was promised will have been sent. Thread-safe; does not wait
itself.
"""

from __future__ import annotations

import threading
from typing import Final

from peacefs.protocol.limits import MIB

copy_burst_bytes: Final = 4 * MIB


class CopyBudget:
    """The budget of one datanode. Bytes left unused for a while may be sent at once, up to `burst_bytes`."""

    def __init__(self, bytes_per_second: float, burst_bytes: int = copy_burst_bytes) -> None:
        assert bytes_per_second > 0, "a budget of nothing is a repair that never ends"
        self._bytes_per_second = bytes_per_second
        self._burst_s = burst_bytes / bytes_per_second
        self._lock = threading.Lock()
        #: When what has been promised will have been sent; None before the first promise.
        self._spent_until_s: float | None = None

    def reserve(self, now_s: float, size: int) -> float:
        """Promises `size` bytes; the moment from which on they may be sent, which is `now_s` if there is room."""
        with self._lock:
            earliest_s = now_s - self._burst_s
            start_s = earliest_s if self._spent_until_s is None else max(earliest_s, self._spent_until_s)
            self._spent_until_s = start_s + size / self._bytes_per_second
            return max(now_s, self._spent_until_s)
