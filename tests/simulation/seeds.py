"""The choice of seeds for tests of the simulated cluster.

PEACEFS_SEED=n plays the one seed that a failing test has printed. PEACEFS_SEEDS=n plays the first n seeds of each
test, for a longer search. PEACEFS_SEEDS=m-n plays seeds m to n.
"""

from __future__ import annotations

import os

from support.long_runs import often


def seeds(count: int) -> list[int]:
    """Return the seeds of the environment; by default `count` with PEACEFS_LONG=1 and half as many without."""
    if "PEACEFS_SEED" in os.environ:
        return [int(os.environ["PEACEFS_SEED"])]
    default = often(-(-count // 2), count)
    first, dash, last = os.environ.get("PEACEFS_SEEDS", str(default)).partition("-")
    return list(range(int(first), int(last) + 1)) if dash else list(range(1, int(first) + 1))
