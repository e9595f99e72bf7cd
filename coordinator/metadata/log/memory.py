"""The twin of the log in files, for stores in memory: what was appended outlives the store that appended it."""

from __future__ import annotations

from .entry import LogEntry, pack


class MemoryLog:
    """Entries that are durable and that the image is not known to have."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._chain = 0
        #: Raised by the next append, if set.
        self.fails: Exception | None = None

    def append(self, number: int, content: bytes) -> int:
        if self.fails is not None:
            raise self.fails
        _, self._chain = pack(number, self._chain, content)
        self.entries.append(LogEntry(number, self._chain, content))
        return self._chain

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        self.entries = [entry for entry in self.entries if entry.number >= number]

    def close(self) -> None:
        """Nothing is held."""
