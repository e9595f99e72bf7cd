"""Tracks which of a cluster's coordinators to ask: the last known leader, or the next one in turn."""

from __future__ import annotations

import threading

from .addresses import CoordinatorAddress


class Coordinators:
    """The coordinators of one cluster, for all connections of one client. Thread-safe."""

    def __init__(self, address: CoordinatorAddress) -> None:
        self.address = address
        self._each = address.each
        self._lock = threading.Lock()
        self._at = 0

    @property
    def count(self) -> int:
        return len(self._each)

    @property
    def current(self) -> CoordinatorAddress:
        """The coordinator to ask now."""
        return self._each[self._at]

    def leave(self, one: CoordinatorAddress) -> None:
        """Move on to the next coordinator, because `one` does not lead or cannot be reached.

        If several callers leave the same coordinator, only the first call counts.
        """
        with self._lock:
            if self._each[self._at] == one:
                self._at = (self._at + 1) % len(self._each)
