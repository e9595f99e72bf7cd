"""Memory for the clones of the next checkpoint, which the system gives before they are made.

A page that is cloned into memory that was never used waits for the system: milliseconds for each huge page where
memory is fragmented, and an operator that changes all its pages waits for that hundreds of times. A thread asks
for that memory when pages have grown, and ends when it has it. So a program has twice its state in memory from the
beginning, as one that clones all its pages would have from the first checkpoint on.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from peacefs.protocol.limits import MIB
from peacefs.state.pages.frames import Frames

# Memory for clones is asked for ahead in pieces of so many bytes, when so many more frames are used, or an eighth.
state_reserve_piece_bytes: Final = 16 * MIB
state_reserve_step_frames: Final = 16


_MEMORY = Path("/proc/meminfo")


class Reserve:
    """For the thread that the pages belong to; the thread that it starts changes no page."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._wanted = 0
        self._populated = 0
        self._thread: threading.Thread | None = None
        frames.grown = self._grown
        self._grown()

    @property
    def frames(self) -> int:
        """Return up to which frame memory was asked for."""
        return self._populated

    @property
    def ready(self) -> bool:
        """Return whether nothing is being asked for: it is there, or will not be given."""
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Ask for no more, and wait until the thread has ended."""
        self._frames.grown = lambda: None
        self._wanted = 0
        if self._thread is not None:
            self._thread.join()

    def _grown(self) -> None:
        """Aim at a frame for a clone of each page that is there now, and say when to be called again."""
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
            # Memory that is there for others is not taken; without it clones are only slower.
            if available_bytes() < 2 * count * self._frames.page_bytes:
                return
            if not self._frames.populate(self._populated, count):
                return
            self._populated += count


def available_bytes() -> int:
    """Return how much memory the machine has left for programs."""
    for line in _MEMORY.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
