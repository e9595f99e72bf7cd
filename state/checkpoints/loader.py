"""Read a checkpoint's pages into frames, in any order, and register them (SGuard 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peacefs.protocol.errors import CheckpointDamaged
from peacefs.state.kernels.checksums import sums_of
from peacefs.state.kernels.places import WORD_LAYOUT, WORD_PAGE_ID
from peacefs.state.pages.frames import NOBODY, Words
from peacefs.state.pages.manager import PageManager
from peacefs.state.pages.page_set import MAGIC, page_of, set_of

from . import index as indexes
from .store import CheckpointStore


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that was loaded. `damage` says why later ones were not loaded."""

    sequence: int
    pages: int
    stored_counts: dict[int, int]
    damage: tuple[CheckpointDamaged, ...]


@dataclass(frozen=True)
class _Generation:
    """The pages of one file in consecutive frames; `ids` is NOBODY for pages that are not needed."""

    first_frame: int
    stored_in: int
    ids: Words
    sums: NDArray[np.uint32]


class Loader:
    """Load checkpoints of one unit. Pages are registered only after all of them were read and verified."""

    def __init__(self, pages: PageManager, store: CheckpointStore, unit: str) -> None:
        self._pages = pages
        self._store = store
        self._unit = unit

    def load(self, sequence: int, damage: tuple[CheckpointDamaged, ...]) -> Loaded:
        """Load a checkpoint. If it raises, nothing has changed.

        Raises CheckpointDamaged, FileNotFound, PagesExhausted.
        """
        what = f"the index of checkpoint {sequence} of {self._unit}"
        index = indexes.decode(self._store.index(self._unit, sequence), what)
        head = index.head
        if (head.unit, head.sequence) != (self._unit, sequence):
            raise CheckpointDamaged(f"{what} is that of checkpoint {head.sequence} of {head.unit}")
        if head.page_bytes != self._pages.page_bytes:
            raise CheckpointDamaged(
                f"{what} is of pages of {head.page_bytes} bytes; "
                f"make the page manager with page_bytes={head.page_bytes}"
            )
        read: list[_Generation] = []
        try:
            for number in range(len(head.generations)):
                read.append(self._read(index, number))
        except BaseException:
            for each in read:
                self._give_back(each.first_frame, len(each.ids))
            raise
        self._pages.adopt_sets(head.sets)
        for each in read:
            self._pages.adopt_pages(each.first_frame, each.ids, each.stored_in, each.sums)
        self._pages.adopted()
        return Loaded(sequence, head.pages, dict(head.generations), damage)

    def _read(self, index: indexes.Index, number: int) -> _Generation:
        stored_in, count = index.head.generations[number]
        here = index.generations == number
        ids, sums = np.full(count, NOBODY, np.int64), np.zeros(count, np.uint32)
        ids[index.positions[here]] = index.ids[here]
        sums[index.positions[here]] = index.sums[here]
        frames = self._pages.frames
        first = frames.take_run(count)
        try:
            if count:
                self._store.read_pages(self._unit, index.head.sequence, stored_in, frames.buffer(first, count))
            self._verify(first, ids, sums, stored_in)
        except BaseException:
            self._give_back(first, count)
            raise
        return _Generation(first, stored_in, ids, sums)

    def _verify(self, first: int, ids: Words, sums: NDArray[np.uint32], stored_in: int) -> None:
        needed = np.flatnonzero(ids != NOBODY)
        frames = (first + needed).astype(np.int32)
        words = self._pages.frames.words
        rotten = sums_of(words, frames) != sums[needed]
        for at in needed[rotten][:1]:
            raise CheckpointDamaged(f"{_named(int(ids[at]), stored_in)} fails its checksum")
        other = (words[frames, WORD_PAGE_ID] != ids[needed]) | (words[frames, WORD_LAYOUT] >> 32 != MAGIC >> 32)
        for at in needed[other][:1]:
            raise CheckpointDamaged(f"{_named(int(ids[at]), stored_in)} is another page, or none")

    def _give_back(self, first: int, count: int) -> None:
        self._pages.frames.give_back(np.arange(first, first + count, dtype=np.int32))


def _named(identity: int, stored_in: int) -> str:
    return f"page {page_of(identity)} of page set {set_of(identity)}, stored in checkpoint {stored_in},"
