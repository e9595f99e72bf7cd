"""The driver for a thread that must not wait: it reads what the kernel has in memory, and performs nothing else.

A read of a file says at once that its data would have to come from the disk (`RWF_NOWAIT` of Linux; some file
systems know none and say so each time). To open a file may wait for the disk, too: here only those are read that
others have opened and that are kept. Whoever is told that he would wait begins again with another driver.
"""

from __future__ import annotations

from typing import Any, TypeVar

from . import effects as fx
from .kept_files import KeptFiles

T = TypeVar("T")


class WouldWait(Exception):
    """The participant was given up where it would have waited."""


class PageCacheDriver:
    """Runs participants on the calling thread. Thread-safe."""

    def __init__(self, kept_files: KeptFiles) -> None:
        self._kept_files = kept_files

    def run(self, steps: fx.Steps[T]) -> T:
        """Runs a participant to its end; what it raises comes out here. Raises WouldWait."""
        try:
            effect = next(steps)
            while True:
                effect = steps.send(self._perform(effect))
        except StopIteration as stop:
            finished: T = stop.value
            return finished
        except WouldWait:
            steps.close()
            raise

    def _perform(self, effect: fx.Effect) -> Any:
        if isinstance(effect, fx.ReadPart):
            data = self._kept_files.read_from_memory(effect.path, effect.offset, effect.length)
            if data is not None:
                return data
        raise WouldWait
