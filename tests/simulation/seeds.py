"""Choose the seeds that the tests of the simulated cluster play.

PEACEFS_SEED=n plays one, as a failing test has printed it; PEACEFS_SEEDS=n plays the first n of each test, for a
longer search, and PEACEFS_SEEDS=m-n goes on from where another has ended.
"""

from __future__ import annotations

import os

from support.long_runs import often


def seeds(count: int) -> list[int]:
    """Return `count` seeds with PEACEFS_LONG=1 and half as many without, or those that the environment names."""
    if "PEACEFS_SEED" in os.environ:
        return [int(os.environ["PEACEFS_SEED"])]
    default = often(-(-count // 2), count)
    first, dash, last = os.environ.get("PEACEFS_SEEDS", str(default)).partition("-")
    return list(range(int(first), int(last) + 1)) if dash else list(range(1, int(first) + 1))
