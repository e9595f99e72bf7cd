"""Wait for the effects of another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Growth of the polling interval: after a long wait, poll less often, because a poll may load the machine. The
#: delay stays below a twentieth of the wait.
_LOOK_S, _LOOK_MAX_S = 0.01, 0.1
_LOOK_SHARE = 0.05
#: Timeout for conditions that never become true. Everything else is faster, even on a busy machine.
PATIENCE_S = 180.0


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as a condition is true. Raise AssertionError with its description after the timeout."""
    began_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_s
        assert waited_s < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(min(max(waited_s * _LOOK_SHARE, _LOOK_S), _LOOK_MAX_S))
