"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.01


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Returns as soon as it is so; an AssertionError says what was waited for in vain."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(_LOOK_S)
