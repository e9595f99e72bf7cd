"""Limits the total memory for blocks that are being written. Thread-safe."""

from __future__ import annotations

import threading
import time
from typing import Final

from peacefs.protocol.errors import Overloaded
from peacefs.protocol.limits import MIB

block_bytes_held_max: Final = 512 * MIB


class WriteBudget:
    """Counts the unpublished bytes of all blocks.

    A writer that cannot get more memory publishes what it holds before it waits. So writers never wait for each
    other.
    """

    def __init__(self, bytes_max: int = block_bytes_held_max) -> None:
        self._free = bytes_max
        self._changed = threading.Condition()

    def try_take(self, count: int) -> bool:
        with self._changed:
            if self._free < count:
                return False
            self._free -= count
            return True

    def take(self, count: int, timeout_s: float) -> None:
        """Wait until `count` bytes are free. Raises Overloaded on timeout."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while self._free < count:
                if not self._changed.wait(max(0.0, deadline_s - time.monotonic())):
                    raise Overloaded("too many blocks are being written here; try again later")
            self._free -= count

    def give_back(self, count: int) -> None:
        with self._changed:
            self._free += count
            self._changed.notify_all()
