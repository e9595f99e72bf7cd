"""A log in memory, for stores in memory. It can outlive the store that appends to it."""

from __future__ import annotations

from collections.abc import Callable

from .entry import LogEntry, pack


class MemoryLog:
    """A `Log` in memory. `entries` contains the appended entries that were not dropped."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._chain = self.synced = 0
        #: An error for `append` to raise, if set.
        self.fails: Exception | None = None

    def append(self, number: int, content: bytes) -> int:
        if self.fails is not None:
            raise self.fails
        _, self._chain = pack(number, self._chain, content, secret=0)
        self.entries.append(LogEntry(number, self._chain, content))
        self.synced = number
        return self._chain

    def begin_sync(self) -> Callable[[], None]:
        return lambda: None

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        self.entries = [entry for entry in self.entries if entry.number >= number]

    def close(self) -> None:
        """Do nothing: there is no file to close."""
