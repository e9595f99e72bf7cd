"""The local file for changed bytes of an open file, and the staging space that all open files share."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from peacefs.protocol.limits import MIB

_PIECE_BYTES: Final = 1 * MIB


class StagingRoom:
    """Counts the staged bytes of all open files of a mount, up to `bytes_max`. Thread-safe."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self.directory = directory
        self._free = bytes_max
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        return max(self._free, 0)

    def take(self, count: int) -> None:
        """Take bytes, or return them if `count` is negative.

        Files that take bytes at the same time may each exceed the limit by one write.
        """
        with self._lock:
            self._free -= count


class Stage:
    """An unnamed local file, which disappears with this process. Offsets are those of the file in the cluster."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self._descriptor = self._file.fileno()

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def read_into(self, offset: int, target: memoryview) -> int:
        done = 0
        while done < len(target) and (count := os.preadv(self._descriptor, [target[done:]], offset + done)):
            done += count
        return done

    def resize(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def pieces(self, length: int) -> Iterator[bytes]:
        """Yield the first `length` bytes."""
        for offset in range(0, length, _PIECE_BYTES):
            yield os.pread(self._descriptor, min(_PIECE_BYTES, length - offset), offset)

    def close(self) -> None:
        self._file.close()
