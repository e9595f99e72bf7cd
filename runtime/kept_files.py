"""A cache of open files for reading, because opening a file may wait for the disk.

A deleted file occupies disk space while it is open, so files are kept open only for a short time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .disk_files import DiskFile, read_whole_from_memory

kept_file_s: Final = 10.0


@dataclass(slots=True, eq=False)
class _Kept:
    file: DiskFile
    until_s: float
    #: Number of current readers. The last reader closes a file that is no longer kept.
    users: int = 1
    is_kept: bool = True


class KeptFiles:
    """A cache of open files. Call `forget_old` regularly, and `close` after the last read. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        files_max: int,
        kept_s: float = kept_file_s,
    ) -> None:
        self._clock = clock
        self._files_max = files_max
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read a part of a file and keep the file open, if the limit allows. Raises OSError."""
        used = self._join(path) or self._open(path)
        try:
            return os.pread(used.file.descriptor, length, offset)
        finally:
            self._leave(used)

    def read_from_memory(self, path: str, offset: int, length: int) -> bytes | None:
        """Read a part of a kept file without waiting; None if the file or some of the data is not in memory."""
        used = self._join(path)
        if used is None:
            return None
        # Without the lock, so that only this thread is delayed if the kernel waits after all.
        try:
            return read_whole_from_memory(used.file, offset, length)
        finally:
            self._leave(used)

    def _join(self, path: str) -> _Kept | None:
        """Return a kept file and count one more reader; None if it is not kept."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None:
                kept.users += 1
            return kept

    def _open(self, path: str) -> _Kept:
        opened = _Kept(DiskFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)), self._clock() + self._kept_s)
        with self._lock:
            opened.is_kept = path not in self._kept and len(self._kept) < self._files_max
            if opened.is_kept:
                self._kept[path] = opened
        return opened

    def _leave(self, used: _Kept) -> None:
        with self._lock:
            used.users -= 1
            is_last = not used.is_kept and not used.users
        if is_last:
            _close([used])

    def forget_old(self) -> None:
        """Close the files that were kept for `kept_s`. If a file is being read, its last reader closes it."""
        with self._lock:
            now_s = self._clock()
            unused = self._forget([path for path, kept in self._kept.items() if kept.until_s <= now_s])
        _close(unused)

    def close(self) -> None:
        with self._lock:
            unused = self._forget(list(self._kept))
        _close(unused)

    def _forget(self, paths: list[str]) -> list[_Kept]:
        """Stop keeping these files; return those without readers."""
        forgotten = [self._kept.pop(path) for path in paths]
        for kept in forgotten:
            kept.is_kept = False
        return [kept for kept in forgotten if not kept.users]


def _close(unused: list[_Kept]) -> None:
    """Close files. Call without the lock: closing a deleted file may wait for the disk."""
    for each in unused:
        # An error on closing does not matter after reading.
        with contextlib.suppress(OSError):
            os.close(each.file.descriptor)
