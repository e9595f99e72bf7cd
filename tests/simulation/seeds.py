"""Choose the seeds that the tests of the simulated cluster play.

PEACEFS_SEED=n plays one, as a failing test has printed it; PEACEFS_SEEDS=n plays the first n of each test, for a
longer search, and PEACEFS_SEEDS=m-n goes on from where another has ended.
"""

from __future__ import annotations

import os


def seeds(count: int) -> list[int]:
    """`count` of them, unless the environment says otherwise."""
    if "PEACEFS_SEED" in os.environ:
        return [int(os.environ["PEACEFS_SEED"])]
    first, dash, last = os.environ.get("PEACEFS_SEEDS", str(count)).partition("-")
    return list(range(int(first), int(last) + 1)) if dash else list(range(1, int(first) + 1))
