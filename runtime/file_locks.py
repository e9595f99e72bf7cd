"""Locks on open files, which the kernel releases when the last process that has the file open ends."""

from __future__ import annotations

import fcntl
import time

_POLL_S = 0.02


def lock_within(descriptor: int, timeout_s: float) -> bool:
    """Lock an open file for one owner. Return False if another one still has it after `timeout_s`. Blocks."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
