"""One data structure's pages: a flat table from sequence numbers to frames, and the Super Page, number 0.

A page id holds the set's number in its upper half and the page's sequence number in its lower half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from peacefs.protocol.errors import StateError
from peacefs.state.kernels.places import (
    DIRTY,
    HEADER_WORDS,
    NO_PAGE,
    READ_ONLY,
    WORD_LAYOUT,
    WORD_NEXT,
    WORD_PAGE_ID,
    WORD_PREVIOUS,
)

from .frames import FrameNumbers, Frames, Words

state_pages_per_set_max: Final = 2**31 - 1


SUPER_PAGE: Final = 0
_TABLE_BEGIN: Final = 16

# The upper half of a page header's WORD_LAYOUT, in memory and on disk. The lower half is the layout.
MAGIC: Final = 0x5047_5331 << 32
LAYOUT_MASK: Final = 0xFFFF


def page_id(number: int, page: int) -> int:
    """Return the id of a page, from its set's number and its sequence number."""
    return number << 32 | page


def set_of(identity: int) -> int:
    """Return the set's number from a page id."""
    return identity >> 32


def page_of(identity: int) -> int:
    """Return the sequence number from a page id."""
    return identity & 0xFFFF_FFFF


class PageSet:
    """Pages 0, 1, ... of one set; released numbers are reused. A `PageManager` makes it, a structure uses it.

    A page's words may be changed only after `writable`, which clones a page that is being written.
    """

    def __init__(self, frames: Frames, name: str, number: int, settle: Callable[[], None], secret: Words) -> None:
        self.frames = frames
        #: Two words with which a new structure hashes texts that others may choose.
        self.secret = secret
        #: Handles events of other threads. A structure calls it before each change.
        self.settle = settle
        self.name = name
        self.number = number
        #: The frame of each page, -1 for none. A longer table replaces it when it is full.
        self.table: FrameNumbers = np.full(_TABLE_BEGIN, -1, np.int32)
        #: Called before each checkpoint, so that the structure writes its own variables to its Super Page.
        self.write_super_page: Callable[[], None] = lambda: None
        self._next = 0
        self._released: list[int] = []

    def __len__(self) -> int:
        return self._next - len(self._released)

    def __contains__(self, page: int) -> bool:
        return 0 <= page < self._next and self.table[page] >= 0

    @property
    def pages(self) -> list[int]:
        """The sequence numbers, ascending."""
        return [int(page) for page in np.flatnonzero(self.table[: self._next] >= 0)]

    def allocate(self, layout: int) -> int:
        """Return a new page, all zero except its header, which may be changed. Raises PagesExhausted."""
        fresh = self.frames.high
        frame = self.frames.take()
        page = self._released.pop() if self._released else self._next
        if page == self._next:
            if page >= state_pages_per_set_max:
                raise StateError(f"page set {self.name} has {page} pages, as many as a set may have")
            self._next += 1
        self._extend_table(self._next)
        words = self.frames.words[frame]
        if frame < fresh:
            words.fill(0)
        words[WORD_LAYOUT] = MAGIC | layout
        words[WORD_PAGE_ID] = page_id(self.number, page)
        words[WORD_NEXT] = words[WORD_PREVIOUS] = NO_PAGE
        self.frames.owner[frame] = page_id(self.number, page)
        self.frames.flags[frame] = DIRTY
        self.table[page] = frame
        return page

    def release(self, page: int) -> None:
        """Release a page; its number will be reused."""
        assert page in self, "the page is not there"
        self.frames.let_go(int(self.table[page]))
        self.table[page] = -1
        self._released.append(page)

    def clear(self) -> None:
        """Release all pages but the Super Page."""
        for page in self.pages:
            if page != SUPER_PAGE:
                self.release(page)

    def resolve(self, page: int) -> Words:
        """Return a page's words, for reading until the set is changed."""
        found: Words = self.frames.words[self.table[page]]
        return found

    def writable(self, page: int) -> Words:
        """Return a page's words for changing; a clone's if the page is being written. Raises PagesExhausted."""
        found: Words = self.frames.words[self.frames.make_writable(self.table, page)]
        return found

    def body(self, page: int) -> Words:
        """Return the words after the header, for reading."""
        return self.resolve(page)[HEADER_WORDS:]

    def locked(self, pages: Sequence[int]) -> int:
        """Return how many of these pages are being written, so that changing them needs a clone."""
        return int(np.count_nonzero(self.frames.flags[self.table[list(pages)]] & READ_ONLY))

    # -- recovery ----------------------------------------------------------------------------------

    def adopt(self, pages: Words, frames: FrameNumbers) -> None:
        """Register pages that were read into frames, in any order."""
        self._next = max(self._next, int(pages.max()) + 1)
        self._extend_table(self._next)
        self.table[pages] = frames

    def adopted(self) -> None:
        """Find the free numbers, after all pages are registered."""
        self._released = [int(page) for page in np.flatnonzero(self.table[: self._next] < 0)[::-1]]

    def _extend_table(self, length: int) -> None:
        if length <= len(self.table):
            return
        longer = np.full(max(length, 2 * len(self.table)), -1, np.int32)
        longer[: len(self.table)] = self.table
        self.table = longer
