"""Copy-on-write inside a kernel: a page is made writable where it is about to be changed (SGuard 4.4).

The arrays are those of `pages.frames.Frames` and `pages.page_set.PageSet`.
"""

from __future__ import annotations

from typing import Any

from .compiler import helper
from .places import CLONES, DIRTY, FRAMES_MAX, FREE, HIGH, READ_ONLY, RETIRED


@helper
def take_frame(free: Any, counters: Any) -> int:
    """Take a free frame: one that was used before, else the lowest that never was. -1: the bound is reached."""
    if counters[FREE] > 0:
        counters[FREE] -= 1
        return int(free[counters[FREE]])
    if counters[HIGH] < counters[FRAMES_MAX]:
        counters[HIGH] += 1
        return int(counters[HIGH] - 1)
    return -1


@helper
def writable(words: Any, table: Any, flags: Any, owner: Any, free: Any, counters: Any, page: int) -> Any:
    """Return the frame of a page that may be changed now, a clone if it is being written. -1: no frame is free."""
    frame: Any = table[page]
    state = flags[frame]
    if state == DIRTY:
        return frame
    if state & READ_ONLY == 0:
        flags[frame] = state | DIRTY
        return frame
    clone = take_frame(free, counters)
    if clone < 0:
        return -1
    words[clone, :] = words[frame, :]
    owner[clone] = owner[frame]
    flags[clone] = DIRTY
    flags[frame] = READ_ONLY | RETIRED
    table[page] = clone
    counters[CLONES] += 1
    return clone
