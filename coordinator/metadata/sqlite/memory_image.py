"""Applies the log to the image of a store in memory, on the thread that owns the metadata."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import apsw

from peacefs.coordinator.metadata.image_port import ImageKeeper
from peacefs.coordinator.metadata.log.entry import Content

from .connections import DamagedPage, is_fault_of_the_store
from .image import ImageWriter
from .statement_entries import apply_statements


class MemoryImage(ImageKeeper):
    """Applies waiting entries when there are many, when the metadata is idle, and at the end."""

    #: Maximum number of entries that wait to be applied to the image.
    waiting_max = 256

    def __init__(self, writer: ImageWriter) -> None:
        self.writer = writer
        self._waiting: deque[tuple[int, int, Content]] = deque()
        self._imaged: Callable[[int], None] = lambda number: None
        self._synced = writer.number

    def begin(self, imaged: Callable[[int], None]) -> None:
        self._imaged = imaged

    def durable(self, number: int, chain: int, content: Content) -> None:
        self._waiting.append((number, chain, content))
        if len(self._waiting) >= self.waiting_max:
            self.catch_up()

    def _apply(self, count: int) -> None:
        """Apply the first `count` waiting entries."""
        if self.fault is not None:
            raise self.fault
        try:
            self.writer.apply(islice(self._waiting, count))
        except (apsw.Error, DamagedPage) as error:
            self.fault = error
            raise
        for _ in range(count):
            self._waiting.popleft()

    def catch_up(self) -> None:
        self._apply(len(self._waiting))
        self._imaged(self.writer.number)

    def imaged(self) -> apsw.Connection:
        self.catch_up()
        return self.writer.connection

    def tend(self, *, idle: bool) -> int | None:
        if not idle:
            return None
        self.catch_up()
        synced, self._synced = self._synced, self.writer.number
        return None if synced == self._synced else self._synced

    def scrub(self, pages: int) -> Exception | None:
        return None

    def apply_statements(self, content: bytes, journal_number: int, chunks: set[int], tables: set[str]) -> None:
        self.catch_up()
        apply_statements(self.writer, content, journal_number, chunks, tables)

    def is_fault(self, error: Exception) -> bool:
        return is_fault_of_the_store(error)

    def finish(self) -> None:
        if self.fault is None:
            self.catch_up()

    def close(self) -> None:
        self.writer.close()
