"""Copy-on-write within a kernel: make a page writable just before it is changed (SGuard 4.4).

The arrays are those of `pages.frames.Frames` and `pages.page_set.PageSet`.
"""

from __future__ import annotations

from typing import Any

from .compiler import helper
from .places import CLONES, DIRTY, FRAMES_MAX, FREE, HIGH, READ_ONLY, RETIRED


@helper
def take_frame(free: Any, counters: Any) -> int:
    """Take a free frame: a used and freed one, else the lowest unused one. Returns -1 if all are taken."""
    if counters[FREE] > 0:
        counters[FREE] -= 1
        return int(free[counters[FREE]])
    if counters[HIGH] < counters[FRAMES_MAX]:
        counters[HIGH] += 1
        return int(counters[HIGH] - 1)
    return -1


@helper
def writable(words: Any, table: Any, flags: Any, owner: Any, free: Any, counters: Any, page: int) -> Any:
    """Return a frame of the page that may be changed, cloned if needed; -1 if no frame is free."""
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
