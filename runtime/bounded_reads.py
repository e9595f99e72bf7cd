"""Reads of files with a timeout, for readers that can ask another datanode if the disk hangs.

Data in the page cache is returned at once. Other data is read by a thread into a buffer of its own, so that after
a timeout the thread can be left waiting for the disk.
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

# Maximum number of threads that wait for the disk.
bounded_read_threads: Final = 16


class BoundedReads:
    """Reads with a timeout, for ThreadDriver. Starts threads when needed; `close` it after use. Thread-safe."""

    def __init__(self, threads_max: int = bounded_read_threads) -> None:
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._spare: deque[bytearray] = deque(maxlen=threads_max)

    def read_into(self, file: DiskFile, target: memoryview, offset: int, timeout_s: float) -> int:
        """Fill a buffer and return the number of bytes, which is smaller than the buffer only at the file's end.

        Raises PeerTimeout if the disk is too slow, OSError if the read fails.
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
        """Start reading these bytes into the page cache, unless they seem to be there. Does not wait."""
        if not read_from_memory(file, bytearray(1), offset + length - 1):
            self._pool().submit(_ask_for, file.descriptor, offset, length)

    def _room(self, count: int) -> bytearray:
        """Return a buffer, a used one if possible: allocating new memory is slow."""
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
        """Stop the threads, without waiting for running reads."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def _read(descriptor: int, room: memoryview, offset: int) -> int:
    return os.preadv(descriptor, [room], offset)


def _ask_for(descriptor: int, offset: int, length: int) -> None:
    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)
