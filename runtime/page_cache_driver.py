"""A driver for a thread that must not wait. It only reads files that are open and in the page cache.

It uses Linux's `RWF_NOWAIT`, with which a read fails at once if it needs the disk. (File systems without support
always fail.) Opening a file may wait, too, so only files in KeptFiles are read. If a participant would wait, the
caller runs it again from the start with another driver.
"""

from __future__ import annotations

from typing import Any, TypeVar

from . import effects as fx
from .kept_files import KeptFiles

T = TypeVar("T")


class WouldWait(Exception):
    """The participant was stopped because its next effect would have waited."""


class PageCacheDriver:
    """Runs participants on the calling thread, without waiting. Thread-safe."""

    def __init__(self, kept_files: KeptFiles) -> None:
        self._kept_files = kept_files

    def run(self, steps: fx.Steps[T]) -> T:
        """Run a participant to its end; its exceptions are raised here. Raises WouldWait."""
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
