"""Track the coordinators of one cluster, of which one leads: the one that is asked, and the next in turn."""

from __future__ import annotations

import threading

from .addresses import CoordinatorAddress


class Coordinators:
    """The coordinators that one client asks, over several ways. Thread-safe; remembers which has led last."""

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
        """The one to ask now."""
        return self._each[self._at]

    def leave(self, one: CoordinatorAddress) -> None:
        """This one does not lead, or cannot be reached; whoever finds out first moves all on to the next."""
        with self._lock:
            if self._each[self._at] == one:
                self._at = (self._at + 1) % len(self._each)
