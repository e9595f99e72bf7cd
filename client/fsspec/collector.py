"""Detects whether Python's garbage collector is running on this thread.

The collector may start anywhere, even while this thread holds a lock. A finalizer that it calls must therefore not
wait for a lock, nor for a thread that may wait for one.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

_thread = threading.local()


def is_collecting() -> bool:
    """Return True in a finalizer called by the collector, False in one called as the last reference is dropped."""
    return getattr(_thread, "is_collecting", False)


def _note(phase: str, _info: dict[str, Any]) -> None:
    _thread.is_collecting = phase == "start"


gc.callbacks.append(_note)
