"""Choose how much a test does of the same: a little by default, and as much as it can with PEACEFS_LONG=1."""

from __future__ import annotations

import os


def often(short: int, long: int) -> int:
    """Return how many rounds, rows, kills or seeds are wanted."""
    return long if os.environ.get("PEACEFS_LONG") == "1" else short
