"""A checkpoint that was prepared: which pages are to be written, and where the others are already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .frames import FrameNumbers, Words


@dataclass(frozen=True)
class StoredPages:
    """Pages that an older checkpoint holds as they are; arrays of one length."""

    ids: Words
    stored_in: Words
    stored_at: NDArray[np.int32]
    sums: NDArray[np.uint32]


@dataclass(frozen=True)
class PageSnapshot:
    """`frames` hold the pages `ids`, do not change until they were written, and are written in this order."""

    sequence: int
    page_bytes: int
    sets: tuple[tuple[str, int], ...]
    frames: FrameNumbers
    ids: Words
    kept: StoredPages

    @property
    def length(self) -> int:
        """Bytes that are to be written."""
        return len(self.frames) * self.page_bytes
