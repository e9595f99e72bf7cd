"""Populate memory for the clones of the next checkpoint in advance.

Cloning a page into memory that was never used waits for the kernel: milliseconds per huge page if memory is
fragmented, hundreds of times if an operator changes all its pages. So a thread populates memory whenever pages
have grown, and then ends. A program therefore uses twice the memory of its state from the beginning, as it
otherwise would from the first checkpoint that clones all pages.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from peacefs.protocol.limits import MIB
from peacefs.state.pages.frames import Frames

# Bytes populated at once, and by how many frames (or an eighth) usage must grow before the next round.
state_reserve_piece_bytes: Final = 16 * MIB
state_reserve_step_frames: Final = 16


_MEMORY = Path("/proc/meminfo")


class Reserve:
    """Keep memory for clones populated. Use from the pages' own thread; its thread changes no page."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._wanted = 0
        self._populated = 0
        self._thread: threading.Thread | None = None
        frames.grown = self._grown
        self._grown()

    @property
    def frames(self) -> int:
        """The frame up to which memory was populated."""
        return self._populated

    @property
    def ready(self) -> bool:
        """Whether no thread is populating: the memory is there, or the system will not give it."""
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Stop populating, and wait until the thread has ended."""
        self._frames.grown = lambda: None
        self._wanted = 0
        if self._thread is not None:
            self._thread.join()

    def _grown(self) -> None:
        """Aim at one frame for a clone of each present page, and set when to be called again."""
        frames = self._frames
        frames.grown_at = frames.high + max(state_reserve_step_frames, frames.high // 8)
        self._wanted = min(2 * frames.used, frames.count)
        if self._wanted > self._populated and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._populate, name="peacefs-state-reserve", daemon=True)
            self._thread.start()

    def _populate(self) -> None:
        step = max(state_reserve_piece_bytes // self._frames.page_bytes, 1)
        self._populated = max(self._populated, self._frames.high)
        while self._populated < self._wanted:
            count = min(step, self._wanted - self._populated)
            # Leave memory that others may need. Without populated memory clones are only slower.
            if available_bytes() < 2 * count * self._frames.page_bytes:
                return
            if not self._frames.populate(self._populated, count):
                return
            self._populated += count


def available_bytes() -> int:
    """Return the bytes of memory that the machine has available for programs."""
    for line in _MEMORY.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
