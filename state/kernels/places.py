"""Flags of frames, indexes into arrays that kernels and Python share, and words of a page's header."""

from __future__ import annotations

from typing import Final

# Flags of a frame. A clean page, unchanged since the last checkpoint, has none.
READ_ONLY: Final = 1
DIRTY: Final = 2
# An old copy that was replaced by a clone, and is kept until it has been written.
RETIRED: Final = 4

# Indexes into the array of counters.
FREE: Final = 0
HIGH: Final = 1
FRAMES_MAX: Final = 2
CLONES: Final = 3
STATUS: Final = 4
COUNTERS: Final = 8

# Why a kernel stopped before the end of its batch.
DONE: Final = 0
NO_FRAMES: Final = 1
GROW: Final = 2
OVERFLOW: Final = 3

# Words of a page's header.
WORD_LAYOUT: Final = 0
WORD_PAGE_ID: Final = 1
WORD_NEXT: Final = 2
WORD_PREVIOUS: Final = 3
WORD_COUNT: Final = 4
WORD_A: Final = 5
WORD_B: Final = 6
WORD_C: Final = 7
HEADER_WORDS: Final = 8

# In place of a page's sequence number: no page.
NO_PAGE: Final = -1
