"""Choose how much a test repeats: a little by default, much more with PEACEFS_LONG=1."""

from __future__ import annotations

import os
from typing import Final

IS_LONG: Final = os.environ.get("PEACEFS_LONG") == "1"


def often(short: int, long: int) -> int:
    """Return the number of rounds, rows, kills or seeds."""
    return long if IS_LONG else short
