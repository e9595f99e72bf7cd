"""The image of a simulated coordinator, written at random times, as by the service's second process."""

from __future__ import annotations

from random import Random

from peacefs.coordinator.metadata.sqlite.image import ImageWriter
from peacefs.coordinator.metadata.sqlite.memory_image import MemoryImage


class LateImage(MemoryImage):
    """An image that applies some of the waiting entries, and reports them later."""

    waiting_max = 1_000_000_000

    def __init__(self, writer: ImageWriter, random: Random) -> None:
        super().__init__(writer)
        self._random = random

    def tend(self, *, idle: bool) -> int | None:
        if self._waiting and self._random.random() < 0.5:
            self._apply(self._random.randint(1, len(self._waiting)))
            return None
        self._imaged(self.writer.number)
        if self._random.random() < 0.5 or self._synced == self.writer.number:
            return None
        self._synced = self.writer.number
        return self._synced
