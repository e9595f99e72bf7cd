"""Choose the steps of a seeded run before which something fails.

A run for each step takes minutes, so that a test plays some of them by default, of several nodes at steps of their
own, and three times as many with PEACEFS_LONG=1. PEACEFS_STEPS=all plays all of them, for each node, and
PEACEFS_STEPS=n every nth.
"""

from __future__ import annotations

import os

from support.long_runs import often


def steps(count: int, *, every: int, begin: int = 0, offset: int = 0) -> range:
    """Return every nth step from `begin` up to `count`. The environment may set n."""
    if os.environ.get("PEACEFS_STEPS") == "all":
        return range(begin, count)
    wanted = stride(every)
    return range(begin + offset % wanted, count, wanted)


def stride(every: int) -> int:
    """Return the distance between failures: `every` steps in a long run. The environment may set it."""
    wanted = os.environ.get("PEACEFS_STEPS", str(often(every * 3, every)))
    return 1 if wanted == "all" else int(wanted)
