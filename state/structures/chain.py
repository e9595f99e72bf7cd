"""Rows of words in a doubly linked chain of pages: the common part of List, Queue and Deque (SGuard, Table 3).

A page holds `WORD_COUNT` consecutive rows, the first in slot `WORD_A`. Links give the pages' order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from peacefs.protocol.errors import StateError
from peacefs.state.kernels.places import HEADER_WORDS, NO_PAGE, WORD_A, WORD_COUNT, WORD_NEXT, WORD_PREVIOUS
from peacefs.state.pages.page_set import PageSet

from .records import Words

CHAIN_LAYOUT: Final = 18


class Chain:
    """Rows of `row_words` words by position, for List, Queue and Deque.

    The pages' links always agree with `_order` and `_counts`. Callers check positions.
    """

    def __init__(self, pages: PageSet, row_words: int) -> None:
        self._pages = pages
        self._row_words = row_words
        self.capacity = (pages.frames.page_bytes // 8 - HEADER_WORDS) // row_words
        self._order: list[int] = []
        self._counts: list[int] = []
        #: The position after the last row of each page; None if it must be recomputed.
        self._ends: Words | None = None
        self.length = 0

    @property
    def head(self) -> int:
        return self._order[0] if self._order else NO_PAGE

    def recover(self, head: int) -> None:
        """Follow the links from the first page. Raises StateError if a link is broken or closes a circle."""
        self._order, self._counts = [], []
        page, previous, seen = head, NO_PAGE, set[int]()
        while page != NO_PAGE:
            if page in seen or page not in self._pages:
                raise StateError(
                    f"page set {self._pages.name}: page {previous} links to page {page}, which cannot be"
                )
            words = self._pages.resolve(page)
            if words[WORD_PREVIOUS] != previous:
                raise StateError(
                    f"page set {self._pages.name}: pages {previous} and {page} do not link to each other"
                )
            seen.add(page)
            self._order.append(page)
            self._counts.append(int(words[WORD_COUNT]))
            previous, page = page, int(words[WORD_NEXT])
        self.length = sum(self._counts)
        self._ends = None

    # -- reading -----------------------------------------------------------------------------------

    def row(self, position: int) -> Words:
        """Return a row, as a view."""
        number, slot = self._place(position)
        found: Words = self._rows(number)[slot]
        return found

    def rows(self, start: int, stop: int) -> Words:
        """Return a copy of the rows from `start` up to, not including, `stop`."""
        found = np.empty((max(0, stop - start), self._row_words), np.int64)
        at = 0
        for rows in self.pieces(start, stop):
            found[at : at + len(rows)] = rows
            at += len(rows)
        return found

    def pieces(self, start: int, stop: int) -> Iterator[Words]:
        """Yield the rows from `start` up to, not including, `stop`, as one view per page."""
        if start >= stop:
            return
        number, slot = self._place(start)
        while start < stop:
            piece = self._rows(number)[slot : slot + stop - start]
            yield piece
            start += len(piece)
            number, slot = number + 1, 0

    def gather(self, positions: Words) -> Words:
        """Return a copy of the rows at these positions."""
        found = np.empty((len(positions), self._row_words), np.int64)
        numbers = np.searchsorted(self._bounds(), positions, side="right")
        for number in np.unique(numbers):
            here = numbers == number
            begin = self._begin(int(number))
            found[here] = self._rows(int(number))[positions[here] - begin]
        return found

    # -- changing ----------------------------------------------------------------------------------

    def put(self, start: int, rows: Words) -> None:
        """Replace rows, beginning at `start`."""
        if not len(rows):
            return
        number, slot = self._place(start)
        at = 0
        while at < len(rows):
            there = self._rows(number, change=True)[slot : slot + len(rows) - at]
            there[:] = rows[at : at + len(there)]
            at += len(there)
            number, slot = number + 1, 0

    def append(self, rows: Words) -> None:
        at = 0
        while at < len(rows):
            if not self._order or self._first_slot(-1) + self._counts[-1] == self.capacity:
                self._link(len(self._order), 0)
            room = self.capacity - self._first_slot(-1) - self._counts[-1]
            piece = rows[at : at + room]
            words = self._pages.writable(self._order[-1])
            begin = self._first_slot(-1) + self._counts[-1]
            self._slots(words)[begin : begin + len(piece)] = piece
            self._count(len(self._order) - 1, self._counts[-1] + len(piece))
            at += len(piece)

    def prepend(self, rows: Words) -> None:
        """Insert rows before the first, in their order."""
        left = len(rows)
        while left:
            if not self._order or self._first_slot(0) == 0:
                self._link(0, self.capacity)
            begin = self._first_slot(0)
            piece = rows[max(0, left - begin) : left]
            words = self._pages.writable(self._order[0])
            self._slots(words)[begin - len(piece) : begin] = piece
            words[WORD_A] = begin - len(piece)
            self._count(0, self._counts[0] + len(piece))
            left -= len(piece)

    def insert(self, position: int, rows: Words) -> None:
        """Insert rows before a position."""
        if position == self.length:
            self.append(rows)
            return
        if position == 0:
            self.prepend(rows)
            return
        number, slot = self._place(position)
        if slot:
            self._cut(number, slot)
            number += 1
        self._insert_before(number, rows)

    def delete(self, start: int, stop: int) -> None:
        """Remove the rows from `start` up to, not including, `stop`. Release pages that become empty."""
        left = stop - start
        while left > 0:
            number, slot = self._place(start)
            count = self._counts[number]
            gone = min(left, count - slot)
            if gone == count:
                self._unlink(number)
            else:
                words = self._pages.writable(self._order[number])
                if slot == 0:
                    words[WORD_A] += gone
                else:
                    rows = self._view(words)
                    rows[slot : count - gone] = rows[slot + gone : count].copy()
                self._count(number, count - gone)
            left -= gone

    def clear(self) -> None:
        for page in self._order:
            self._pages.release(page)
        self._order, self._counts, self._ends, self.length = [], [], None, 0

    # -- inside ------------------------------------------------------------------------------------

    def _bounds(self) -> Words:
        if self._ends is None:
            self._ends = np.cumsum(np.array(self._counts, np.int64))
        return self._ends

    def _begin(self, number: int) -> int:
        return int(self._bounds()[number - 1]) if number else 0

    def _place(self, position: int) -> tuple[int, int]:
        """Return the index of a row's page in the chain, and the row's index in that page."""
        number = int(np.searchsorted(self._bounds(), position, side="right"))
        return number, position - self._begin(number)

    def _slots(self, words: Words) -> Words:
        return words[HEADER_WORDS : HEADER_WORDS + self.capacity * self._row_words].reshape(-1, self._row_words)

    def _view(self, words: Words) -> Words:
        first = int(words[WORD_A])
        return self._slots(words)[first : first + int(words[WORD_COUNT])]

    def _rows(self, number: int, *, change: bool = False) -> Words:
        page = self._order[number]
        return self._view(self._pages.writable(page) if change else self._pages.resolve(page))

    def _first_slot(self, number: int) -> int:
        return int(self._pages.resolve(self._order[number])[WORD_A])

    def _count(self, number: int, count: int) -> None:
        """Set the number of rows of a page, which must be writable already."""
        self.length += count - self._counts[number]
        if self._ends is not None:
            self._ends[number:] += count - self._counts[number]
        self._counts[number] = count
        self._pages.writable(self._order[number])[WORD_COUNT] = count

    def _link(self, number: int, first_slot: int) -> None:
        """Insert an empty page into the chain at index `number`."""
        # Three pages change; either all of them or none.
        self._pages.frames.ensure(3)
        page = self._pages.allocate(CHAIN_LAYOUT)
        words = self._pages.writable(page)
        words[WORD_A] = first_slot
        if number > 0:
            words[WORD_PREVIOUS] = self._order[number - 1]
            self._pages.writable(self._order[number - 1])[WORD_NEXT] = page
        if number < len(self._order):
            words[WORD_NEXT] = self._order[number]
            self._pages.writable(self._order[number])[WORD_PREVIOUS] = page
        self._order.insert(number, page)
        self._counts.insert(number, 0)
        self._ends = None

    def _unlink(self, number: int) -> None:
        self._pages.frames.ensure(2)
        before = self._order[number - 1] if number > 0 else NO_PAGE
        after = self._order[number + 1] if number + 1 < len(self._order) else NO_PAGE
        if before != NO_PAGE:
            self._pages.writable(before)[WORD_NEXT] = after
        if after != NO_PAGE:
            self._pages.writable(after)[WORD_PREVIOUS] = before
        self._pages.release(self._order.pop(number))
        self.length -= self._counts.pop(number)
        self._ends = None

    def _cut(self, number: int, slot: int) -> None:
        """Move the rows of a page from `slot` on to a new page after it."""
        self._pages.frames.ensure(4)
        self._link(number + 1, 0)
        behind = self._rows(number)[slot:].copy()
        self._slots(self._pages.writable(self._order[number + 1]))[: len(behind)] = behind
        self._count(number + 1, len(behind))
        self._count(number, slot)

    def _insert_before(self, number: int, rows: Words) -> None:
        """Insert rows before page `number`: at the end of the previous page, and in new pages between the two."""
        at = 0
        number -= 1
        while at < len(rows):
            end = self._first_slot(number) + self._counts[number]
            if end == self.capacity:
                self._link(number + 1, 0)
                number += 1
                continue
            piece = rows[at : at + self.capacity - end]
            self._slots(self._pages.writable(self._order[number]))[end : end + len(piece)] = piece
            self._count(number, self._counts[number] + len(piece))
            at += len(piece)
