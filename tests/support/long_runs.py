"""Choose how much a test repeats: a little by default, much more with PEACEFS_LONG=1."""

from __future__ import annotations

import os


def often(short: int, long: int) -> int:
    """Return the number of rounds, rows, kills or seeds."""
    return long if os.environ.get("PEACEFS_LONG") == "1" else short
