"""The driver for a thread that must not wait: it reads what the kernel has in memory, and performs nothing else.

A read of a file says at once that its data would have to come from the disk (`RWF_NOWAIT` of Linux; some file
systems know none and say so each time). To open a file may wait for the disk, too: others do that, and the file is
kept here for a while. Whoever is told that he would wait begins again with another driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from . import effects as fx
from .disk_files import DiskFile, read_from_memory

T = TypeVar("T")


class WouldWait(Exception):
    """The participant was given up where it would have waited: for `path` to be opened, or else for something."""

    def __init__(self, path: str | None = None) -> None:
        super().__init__(path)
        self.path = path


class PageCacheDriver:
    """Used by one thread. `files_max` files are kept at most; `forget` each when it has been kept for long."""

    def __init__(self, wall_clock: Callable[[], float], *, files_max: int) -> None:
        self._files_max = files_max
        self._files: dict[str, DiskFile] = {}
        self._perform: dict[type[fx.Effect], Callable[[Any], Any]] = {
            fx.OpenLocalFile: self._open_file,
            fx.ReadAt: _read_at,
            fx.CloseFile: lambda e: None,
            fx.WallClock: lambda e: wall_clock(),
        }

    def run(self, steps: fx.Steps[T]) -> T:
        """Runs a participant to its end; what it raises comes out here. Raises WouldWait."""
        try:
            effect = next(steps)
            while True:
                perform = self._perform.get(type(effect))
                if perform is None:
                    raise WouldWait
                effect = steps.send(perform(effect))
        except StopIteration as stop:
            finished: T = stop.value
            return finished
        except WouldWait:
            steps.close()
            raise

    def keep(self, path: str, file: DiskFile) -> bool:
        """Takes over a file that was opened by another driver, if there is room and none of that name is here."""
        if path in self._files or len(self._files) >= self._files_max:
            return False
        self._files[path] = file
        return True

    def forget(self, path: str) -> None:
        """Closes a file, whose space on the disk it may hold after its name has gone."""
        file = self._files.pop(path, None)
        if file is not None:
            os.close(file.descriptor)

    def close(self) -> None:
        for path in list(self._files):
            self.forget(path)

    def _open_file(self, effect: fx.OpenLocalFile) -> DiskFile:
        file = self._files.get(effect.path)
        if file is None or effect.create:
            raise WouldWait(effect.path)
        return file


def _read_at(effect: fx.ReadAt) -> bytes:
    assert isinstance(effect.file, DiskFile)
    data = bytearray(effect.length)
    if read_from_memory(effect.file, data, effect.offset) < effect.length:
        raise WouldWait
    return bytes(data)
