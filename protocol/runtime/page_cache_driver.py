"""The driver for a thread that must not wait: it reads what the kernel has in memory, and performs nothing else.

A read of a file says at once that its data would have to come from the disk (`RWF_NOWAIT` of Linux; some file
systems know none and say so each time). To open a file may wait for the disk, too: here only those are read that
others have opened and that are kept. Whoever is told that he would wait begins again with another driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import effects as fx
from .disk_files import DiskFile, read_whole_from_memory
from .kept_files import KeptFiles

T = TypeVar("T")


class WouldWait(Exception):
    """The participant was given up where it would have waited."""


class PageCacheDriver:
    """Runs participants on the calling thread. Thread-safe."""

    def __init__(self, wall_clock: Callable[[], float], kept_files: KeptFiles) -> None:
        self._wall_clock = wall_clock
        self._kept_files = kept_files

    def run(self, steps: fx.Steps[T]) -> T:
        """Runs a participant to its end; what it raises comes out here. Raises WouldWait."""
        opened: list[DiskFile] = []
        try:
            effect = next(steps)
            while True:
                effect = steps.send(self._perform(effect, opened))
        except StopIteration as stop:
            finished: T = stop.value
            return finished
        except WouldWait:
            steps.close()
            raise
        finally:
            # A participant that was given up closes nothing.
            for file in opened:
                self._kept_files.release(file)

    def _perform(self, effect: fx.Effect, opened: list[DiskFile]) -> Any:
        match effect:
            case fx.OpenLocalFile(create=False, may_be_kept=True):
                file = self._kept_files.open(effect.path)
                if file is not None:
                    opened.append(file)
                    return file
            case fx.ReadAt():
                assert isinstance(effect.file, DiskFile)
                data = read_whole_from_memory(effect.file, effect.offset, effect.length)
                if data is not None:
                    return data
            case fx.CloseFile():
                assert isinstance(effect.file, DiskFile)
                opened.remove(effect.file)
                self._kept_files.release(effect.file)
                return None
            case fx.WallClock():
                return self._wall_clock()
        raise WouldWait
