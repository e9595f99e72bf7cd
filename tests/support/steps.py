"""Choose the steps of a seeded run before which something fails.

A run for each step takes minutes, so that a test plays some of them by default, of several nodes at steps of their
own. PEACEFS_STEPS=all plays all of them, for each node, and PEACEFS_STEPS=n every nth.
"""

from __future__ import annotations

import os


def steps(count: int, *, every: int, begin: int = 0, offset: int = 0) -> range:
    """Return one step of so many from `begin` up to `count`; the environment may say another number."""
    wanted = os.environ.get("PEACEFS_STEPS", str(every))
    if wanted == "all":
        return range(begin, count)
    return range(begin + offset % int(wanted), count, int(wanted))
