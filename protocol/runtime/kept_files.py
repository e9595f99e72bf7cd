"""Files that one reader opens after the other, kept open for a while: to open one may wait for the disk.

A kept file holds its room on the disk after its name has gone, so it is kept for no longer than that is worth.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from peacefs.protocol.limits import kept_file_s

from .disk_files import DiskFile


@dataclass(slots=True, eq=False)
class _Kept:
    path: str
    file: DiskFile
    until_s: float
    users: int = 1
    #: The last of its users closes it.
    is_forgotten: bool = False


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
        self._by_path: dict[str, _Kept] = {}
        #: The same, and those that are forgotten and still in use.
        self._by_descriptor: dict[int, _Kept] = {}

    def open(self, path: str) -> DiskFile | None:
        """A kept file for one more user, who is to call `release`; None if it is not here."""
        with self._lock:
            kept = self._by_path.get(path)
            if kept is None:
                return None
            kept.users += 1
            return kept.file

    def keep(self, path: str, file: DiskFile) -> None:
        """Keep a file that has just been opened, as long as there is room; its user calls `release`."""
        with self._lock:
            if path not in self._by_path and len(self._by_path) < self._files_max:
                kept = _Kept(path, file, self._clock() + self._kept_s)
                self._by_path[path] = self._by_descriptor[file.descriptor] = kept

    def is_kept(self, file: DiskFile) -> bool:
        with self._lock:
            return file.descriptor in self._by_descriptor

    def release(self, file: DiskFile) -> bool:
        """A user needs a file no more. Return whether it is closed here; others are their user's to close."""
        with self._lock:
            kept = self._by_descriptor.get(file.descriptor)
            if kept is None:
                return False
            kept.users -= 1
            self._close_unused(kept)
            return True

    def forget_old(self) -> None:
        """Close what has been kept for long, or leave that to its last user."""
        with self._lock:
            now_s = self._clock()
            self._forget([kept for kept in self._by_path.values() if kept.until_s <= now_s])

    def close(self) -> None:
        with self._lock:
            self._forget(list(self._by_path.values()))

    def _forget(self, forgotten: list[_Kept]) -> None:
        for kept in forgotten:
            del self._by_path[kept.path]
            kept.is_forgotten = True
            self._close_unused(kept)

    def _close_unused(self, kept: _Kept) -> None:
        if kept.is_forgotten and not kept.users:
            del self._by_descriptor[kept.file.descriptor]
            os.close(kept.file.descriptor)
