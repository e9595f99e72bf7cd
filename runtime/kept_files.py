"""Files that one reader reads of after the other, kept open for a while: to open one may wait for the disk.

A kept file holds its room on the disk after its name has gone, so it is kept for no longer than that is worth.
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
    #: Those who read of it at this moment. The last of them closes what is no longer kept.
    users: int = 1
    is_kept: bool = True


class KeptFiles:
    """Thread-safe. `forget_old` is to be called now and then, and `close` when nobody reads any more."""

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
        """Read a part of a file, which is kept where there is room. Raises OSError."""
        used = self._join(path) or self._open(path)
        try:
            return os.pread(used.file.descriptor, length, offset)
        finally:
            self._leave(used)

    def read_from_memory(self, path: str, offset: int, length: int) -> bytes | None:
        """Read a part of a file that is kept without waiting; None where not all of it is to be had so."""
        used = self._join(path)
        if used is None:
            return None
        # Without the lock: should the kernel wait after all, it is for this thread alone.
        try:
            return read_whole_from_memory(used.file, offset, length)
        finally:
            self._leave(used)

    def _join(self, path: str) -> _Kept | None:
        """Return a file that is kept, of which one more reads; None if it is not here."""
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
        """Close what has been kept for long, or leave that to its last user."""
        with self._lock:
            now_s = self._clock()
            unused = self._forget([path for path, kept in self._kept.items() if kept.until_s <= now_s])
        _close(unused)

    def close(self) -> None:
        with self._lock:
            unused = self._forget(list(self._kept))
        _close(unused)

    def _forget(self, paths: list[str]) -> list[_Kept]:
        """Keep them no longer; return those that nobody reads."""
        forgotten = [self._kept.pop(path) for path in paths]
        for kept in forgotten:
            kept.is_kept = False
        return [kept for kept in forgotten if not kept.users]


def _close(unused: list[_Kept]) -> None:
    """Without the lock: to close the last of a file whose name has gone may take the disk's time."""
    for each in unused:
        # All that mattered of it has been read.
        with contextlib.suppress(OSError):
            os.close(each.file.descriptor)
