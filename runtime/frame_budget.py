"""Limits the memory of clients' unfinished frames and the number of connections of a service. No I/O."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from peacefs.protocol.errors import Overloaded

K = TypeVar("K")


class FrameBudget(Generic[K]):
    """Counts the bytes that each connection holds for an unfinished frame. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[K, int] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def hold(self, holder: K, count: int) -> K | None:
        """Set the bytes of `holder`; if the total is too large, return the oldest holder, which must be closed."""
        with self._lock:
            self._bytes += count - self._held.get(holder, 0)
            if count:
                self._held[holder] = count
            else:
                self._held.pop(holder, None)
            return next(iter(self._held)) if self._bytes > self._bytes_max else None

    def overloaded(self) -> Overloaded:
        return Overloaded(f"frames that have begun hold {self._bytes_max} bytes, the limit; try again")


class ConnectionCounts(Generic[K]):
    """Limits the number of connections of each kind, such as each client. Thread-safe."""

    def __init__(self, of_a_kind_max: int) -> None:
        self._max = of_a_kind_max
        self._counts: dict[K, int] = {}
        self._lock = threading.Lock()

    def enter(self, kind: K) -> None:
        """Count one more connection. Raises Overloaded if there are too many of this kind."""
        with self._lock:
            count = self._counts.get(kind, 0)
            if count >= self._max:
                raise Overloaded(f"{kind} has {count} connections here, its limit; close some, or use them again")
            self._counts[kind] = count + 1

    def leave(self, kind: K) -> None:
        with self._lock:
            self._counts[kind] -= 1
            if not self._counts[kind]:
                del self._counts[kind]
