"""Memory as numbered frames of one page each, with flat arrays that say what each frame holds.

All addresses are reserved at once, so a frame is a row of one array. The system provides memory on first use.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from peacefs.protocol.errors import BadRequest, PagesExhausted
from peacefs.protocol.limits import MIB, state_page_bytes_choices
from peacefs.state.kernels.places import (
    CLONES,
    COUNTERS,
    DIRTY,
    FRAMES_MAX,
    FREE,
    HIGH,
    READ_ONLY,
    RETIRED,
)

# A smaller page manager does not ask for huge pages, since it would use little of each.
state_huge_pages_from_bytes: Final = 32 * MIB


Words = NDArray[np.int64]
FrameNumbers = NDArray[np.int32]

#: The owner of a free frame, in place of a page id.
NOBODY: Final = -1

_libc: Final = ctypes.CDLL(None)
# From linux/mman.h; Python has no name for it.
_POPULATE_WRITE: Final = 23
# Python 3.13 and newer have a name; the number is Linux's on x86-64 and ARM.
_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Frames:
    """The frames of one page manager, and what each holds: `flags`, `owner` (a page id) and `stored_...`.

    A clean page is stored in checkpoint `stored_in` at position `stored_at`, with the CRC32C `stored_sum`. Only
    the manager's owning thread changes frames; `PageSet` and the kernels work on the same arrays.
    """

    def __init__(self, page_bytes: int, memory_bytes_max: int) -> None:
        if page_bytes not in state_page_bytes_choices:
            choices = " or ".join(map(str, state_page_bytes_choices))
            raise BadRequest(f"pages of {page_bytes} bytes are not offered: {choices}")
        count = memory_bytes_max // page_bytes
        if count < 1:
            raise BadRequest(f"{memory_bytes_max} bytes of memory hold no page of {page_bytes} bytes")
        self.page_bytes = page_bytes
        self.count = count
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        try:
            self._mapping = mmap.mmap(-1, count * page_bytes, flags=flags)
        except OSError as error:
            raise PagesExhausted(
                f"the system reserves no {memory_bytes_max} bytes ({error.strerror}): give a lower bound"
            ) from None
        if hasattr(mmap, "MADV_HUGEPAGE") and count * page_bytes >= state_huge_pages_from_bytes:
            # Without huge pages it is only slower.
            with suppress(OSError):
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self.words: Words = np.frombuffer(self._mapping, np.int64).reshape(count, page_bytes // 8)
        self.flags: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.owner: Words = np.full(count, NOBODY, np.int64)
        self.free: FrameNumbers = np.zeros(count, np.int32)
        self.counters: Words = np.zeros(COUNTERS, np.int64)
        self.counters[FRAMES_MAX] = count
        self.stored_in: Words = np.zeros(count, np.int64)
        self.stored_at: NDArray[np.int32] = np.zeros(count, np.int32)
        self.stored_sum: NDArray[np.uint32] = np.zeros(count, np.uint32)
        #: Waits until frames may be free, called when none is left. Returns False if none will become free.
        self.wait_for_room: Callable[[], bool] = lambda: False
        #: Called when a frame is used for the first time, if its number is `grown_at` or more.
        self.grown: Callable[[], None] = lambda: None
        self.grown_at = 0

    @property
    def used(self) -> int:
        """The number of frames in use, with old copies that are still being written."""
        return int(self.counters[HIGH] - self.counters[FREE])

    @property
    def clones(self) -> int:
        """How many pages were cloned because they changed while they were being written."""
        return int(self.counters[CLONES])

    @property
    def high(self) -> int:
        """The first frame that was never used; nor was any after it."""
        return int(self.counters[HIGH])

    def buffer(self, first: int, count: int = 1) -> memoryview:
        """Return the memory of consecutive frames."""
        begin = first * self.page_bytes
        return memoryview(self._mapping)[begin : begin + count * self.page_bytes]

    def populate(self, first: int, count: int) -> bool:
        """Make the system provide memory for frames. Return False if it cannot (before Linux 5.14).

        The only method that another thread may call. It releases the GIL.
        """
        begin = ctypes.c_void_p(self.words.ctypes.data + first * self.page_bytes)
        return bool(_libc.madvise(begin, ctypes.c_size_t(count * self.page_bytes), _POPULATE_WRITE) == 0)

    def take(self) -> int:
        """Take a frame, which may hold any old content. Raises PagesExhausted."""
        counters = self.counters
        while True:
            if counters[FREE] > 0:
                counters[FREE] -= 1
                return int(self.free[counters[FREE]])
            if counters[HIGH] < counters[FRAMES_MAX]:
                counters[HIGH] += 1
                taken = int(counters[HIGH] - 1)
                if taken >= self.grown_at:
                    self.grown()
                return taken
            self.make_room()

    def ensure(self, count: int) -> None:
        """Wait until `count` frames can be taken, so that a change of several pages is not cut short.

        Raises PagesExhausted.
        """
        while self.count - self.used < count:
            self.make_room()

    def make_room(self) -> None:
        """Wait for frames that are being written. Raises PagesExhausted if there are none."""
        if not self.wait_for_room():
            raise PagesExhausted(
                f"all {self.count} pages of {self.page_bytes} bytes are used; give the page manager more memory"
            )

    def take_run(self, count: int) -> int:
        """Take consecutive frames that were never used. Raises PagesExhausted."""
        first = self.high
        if first + count > self.count:
            raise PagesExhausted(
                f"{count} pages are to be loaded and {self.count - first} of {self.count} are left; "
                "give the page manager more memory"
            )
        self.counters[HIGH] += count
        self.grown()
        return first

    def give_back(self, frames: FrameNumbers) -> None:
        """Free frames that are in use."""
        begin = int(self.counters[FREE])
        self.free[begin : begin + len(frames)] = frames
        self.counters[FREE] += len(frames)
        self.owner[frames] = NOBODY
        self.flags[frames] = 0

    def let_go(self, frame: int) -> None:
        """Free the frame of a released page, or retire it if it is still being written."""
        if self.flags[frame] & READ_ONLY:
            self.flags[frame] |= RETIRED
        else:
            self.give_back(np.array([frame], np.int32))

    def make_writable(self, table: FrameNumbers, page: int) -> int:
        """Return a frame of the page that may be changed, cloned if the page is being written.

        Does the same as the kernels' `writable`. Raises PagesExhausted.
        """
        frame = int(table[page])
        if self.flags[frame] & READ_ONLY == 0:
            self.flags[frame] |= DIRTY
            return frame
        clone = self.take()
        # The page may have been written while this waited for a frame.
        if self.flags[frame] & READ_ONLY == 0:
            self.flags[frame] |= DIRTY
            self.give_back(np.array([clone], np.int32))
            return frame
        self.words[clone] = self.words[frame]
        self.owner[clone] = self.owner[frame]
        self.flags[clone] = DIRTY
        self.flags[frame] |= RETIRED
        table[page] = clone
        self.counters[CLONES] += 1
        return clone
