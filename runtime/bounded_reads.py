"""Reads of files by those who have somebody else to ask should the disk hang.

What is in the kernel's memory comes at once. For the rest a thread waits in the reader's place, and is left to
wait once the reader's time is over: it reads into memory of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from peacefs.protocol.errors import PeerTimeout

from .disk_files import DiskFile, read_from_memory

# Readers of shared descriptors wait for the disk with so many threads at most.
bounded_read_threads: Final = 16


class BoundedReads:
    """Thread-safe; begins a thread when it first needs one. `close` it when no more is read."""

    def __init__(self, threads_max: int = bounded_read_threads) -> None:
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._spare: deque[bytearray] = deque(maxlen=threads_max)

    def read_into(self, file: DiskFile, target: memoryview, offset: int, timeout_s: float) -> int:
        """Read into a buffer and return the number of bytes, fewer than there is room for only at the end of the
        file.

        Raises PeerTimeout when the disk has not given them in time, OSError when it cannot.
        """
        given = read_from_memory(file, target, offset)
        if given == len(target):
            return given
        missing = target[given:]
        room = self._room(len(missing))
        reading = self._pool().submit(_read, file.descriptor, memoryview(room)[: len(missing)], offset + given)
        try:
            count = reading.result(timeout_s)
        except TimeoutError:
            reading.cancel()
            raise PeerTimeout(f"the disk gave nothing for {timeout_s:g} s") from None
        missing[:count] = memoryview(room)[:count]
        self._spare.append(room)
        return given + count

    def read_ahead(self, file: DiskFile, offset: int, length: int) -> None:
        """Has the disk begin to read these bytes, unless they seem to be in memory. Waits for nothing."""
        if not read_from_memory(file, bytearray(1), offset + length - 1):
            self._pool().submit(_ask_for, file.descriptor, offset, length)

    def _room(self, count: int) -> bytearray:
        """Memory that was used before, where there is some: new memory is slow to come by."""
        with contextlib.suppress(IndexError):
            room = self._spare.pop()
            if len(room) >= count:
                return room
        return bytearray(count)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._threads_max, thread_name_prefix="bounded-reads")
            return self._threads

    def close(self) -> None:
        """Waits for nobody."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def _read(descriptor: int, room: memoryview, offset: int) -> int:
    return os.preadv(descriptor, [room], offset)


def _ask_for(descriptor: int, offset: int, length: int) -> None:
    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)
