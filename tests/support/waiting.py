"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.01
#: Longer than anything takes on a machine that is busy with much else: only what never comes is given up.
PATIENCE_S = 180.0


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as it is so; an AssertionError says what was waited for in vain."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(_LOOK_S)
