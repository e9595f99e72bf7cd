"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

#: A look may cost a request, on the machine that is to bring about what is waited for: whoever has waited for long
#: looks less often, and learns of it a twentieth later.
_LOOK_S, _LOOK_MAX_S = 0.01, 0.1
_LOOK_SHARE = 0.05
#: Longer than anything takes on a machine that is busy with much else: only what never comes is given up.
PATIENCE_S = 180.0


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as it is so; an AssertionError says what was waited for in vain."""
    began_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_s
        assert waited_s < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(min(max(waited_s * _LOOK_SHARE, _LOOK_S), _LOOK_MAX_S))
