"""A prepared checkpoint: which pages to write, and where the other pages are already stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .frames import FrameNumbers, Words


@dataclass(frozen=True)
class StoredPages:
    """Pages that older checkpoints hold unchanged; arrays of equal length."""

    ids: Words
    stored_in: Words
    stored_at: NDArray[np.int32]
    sums: NDArray[np.uint32]


@dataclass(frozen=True)
class PageSnapshot:
    """A prepared checkpoint. `frames` hold pages `ids` in writing order, and do not change until written."""

    sequence: int
    page_bytes: int
    sets: tuple[tuple[str, int], ...]
    frames: FrameNumbers
    ids: Words
    kept: StoredPages

    @property
    def length(self) -> int:
        """The number of bytes to write."""
        return len(self.frames) * self.page_bytes
