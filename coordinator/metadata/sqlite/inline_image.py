"""Writes the image in the thread that owns the metadata, if there is no process for it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from peacefs.coordinator.metadata.image_port import ImageKeeper
from peacefs.coordinator.metadata.log.entry import Content

from .connections import DamagedPage, damage_found, damage_of, is_fault_of_the_store, is_want_of_room
from .image import ImageWriter
from .page_sums import PageScrub
from .statement_entries import apply_statements

# Maximum number of entries that wait for the image.
image_entries_waiting_max: Final = 256


class InlineImage(ImageKeeper):
    """Applies waiting entries when there are many, when the metadata is idle, and at the end."""

    def __init__(
        self,
        writer: ImageWriter,
        scrub: PageScrub | None = None,
        *,
        store: Path | None = None,
        waiting_max: int = image_entries_waiting_max,
    ) -> None:
        """`store` is the path of the image, None for one in memory."""
        self._store = store
        self.writer = writer
        self._scrub = scrub
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[int, int, Content]] = deque()
        self._imaged: Callable[[int], None] = lambda number: None
        self._synced = writer.number

    def begin(self, imaged: Callable[[int], None]) -> None:
        self._imaged = imaged

    def durable(self, number: int, chain: int, content: Content) -> None:
        self._waiting.append((number, chain, content))
        if len(self._waiting) >= self._waiting_max:
            self._apply_if_there_is_room()

    def _apply_if_there_is_room(self) -> None:
        try:
            self.catch_up()
        except apsw.Error as error:
            # The log has all entries. They are applied when there is room.
            if not is_want_of_room(error):
                raise

    def catch_up(self) -> None:
        if self.fault is not None:
            raise self.fault
        if not self._waiting:
            return
        try:
            self.writer.apply(self._waiting)
        except (apsw.Error, DamagedPage, OSError) as error:
            if not is_want_of_room(error):
                self.fault = error
            raise
        self._waiting.clear()
        self._imaged(self.writer.number)

    def imaged(self) -> apsw.Connection:
        self.catch_up()
        return self.writer.connection

    def tend(self, *, idle: bool) -> int | None:
        if self._store is not None:
            self.fault = self.fault or damage_of(self._store)
        if self.fault is not None:
            raise self.fault
        if not idle or (not self._waiting and self._synced == self.writer.number):
            return None
        self._apply_if_there_is_room()
        if self.writer.copy_log():
            self._synced = self.writer.number
            return self._synced
        return None

    def scrub(self, pages: int) -> Exception | None:
        if self._scrub is None or self.fault is not None:
            return self.fault if isinstance(self.fault, Exception) else None
        return damage_found(self._scrub, pages, is_log_copied=self._synced == self.writer.number)

    def apply_statements(self, content: bytes, journal_number: int, chunks: set[int], tables: set[str]) -> None:
        self.catch_up()
        apply_statements(self.writer, content, journal_number, chunks, tables)

    def is_fault(self, error: Exception) -> bool:
        return is_fault_of_the_store(error)

    def finish(self) -> None:
        with contextlib.suppress(apsw.Error, DamagedPage, OSError):
            if self.fault is None:
                self.catch_up()

    def close(self) -> None:
        if self._scrub is not None:
            self._scrub.close()
        with contextlib.suppress(DamagedPage):
            # SQLite copies its log into the file now, and raises DamagedPage instead of copying a damaged page.
            self.writer.close()
