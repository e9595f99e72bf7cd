"""The image of a simulated coordinator, written at random times, as a second process writes the real one."""

from __future__ import annotations

from itertools import islice
from random import Random

import apsw

from peacefs.coordinator.metadata.sqlite.connections import is_want_of_room
from peacefs.coordinator.metadata.sqlite.image import ImageWriter
from peacefs.coordinator.metadata.sqlite.inline_image import InlineImage

_NEVER = 1_000_000_000


class LateImage(InlineImage):
    """Applies some of the waiting entries, and reports that at a later time."""

    def __init__(self, writer: ImageWriter, random: Random) -> None:
        super().__init__(writer, waiting_max=_NEVER)
        self._random = random

    def tend(self, *, idle: bool) -> int | None:
        if self._waiting and self._random.random() < 0.5:
            self._apply_some(self._random.randint(1, len(self._waiting)))
            return None
        self._imaged(self.writer.number)
        if self._random.random() < 0.5 or self._synced == self.writer.number:
            return None
        self._synced = self.writer.number
        return self._synced

    def _apply_some(self, entries: int) -> None:
        try:
            self.writer.apply(islice(self._waiting, entries))
        except apsw.Error as error:
            if not is_want_of_room(error):
                raise
            return
        for _ in range(entries):
            self._waiting.popleft()
