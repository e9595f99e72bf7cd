"""Know whether Python's garbage collector runs on this thread.

It may begin within any piece of code, so also while this thread holds a lock. What a finalizer that it calls does
must not wait for a lock, or for a thread that may.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

_thread = threading.local()


def is_collecting() -> bool:
    """Return True in a finalizer that the collector calls, False in one that runs as the last reference goes."""
    return getattr(_thread, "is_collecting", False)


def _note(phase: str, _info: dict[str, Any]) -> None:
    _thread.is_collecting = phase == "start"


gc.callbacks.append(_note)
