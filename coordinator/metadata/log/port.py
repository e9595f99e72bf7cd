"""The interfaces to the log and to the files beside it, and the entry that is passed to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from peacefs.coordinator.metadata.tables import Row


class Sealed:
    """A closed entry on its way to the log."""

    __slots__ = (
        *("chain", "changes", "content", "epoch", "is_journaled", "is_written", "number", "previous"),
        *("refusal", "tx"),
    )

    def __init__(
        self, number: int, tx: int, epoch: int, changes: list[tuple[int, Row]], content: bytes, is_journaled: bool
    ) -> None:
        self.number = number
        self.tx = tx
        self.epoch = epoch
        self.changes = changes
        self.content = content
        #: With a journal, the checksum of the previous entry in the journal.
        self.previous: bytes | None = None
        #: True if the entry is in the journal, or if there is no journal.
        self.is_journaled = is_journaled
        self.is_written = False
        #: The reason if the entry was undone.
        self.refusal: Exception | None = None
        #: The checksum of the entry in the chain of the log, once the entry is written.
        self.chain = 0


class Log(Protocol):
    """Stores entries on the disk."""

    #: The last entry that would survive a power cut.
    synced: int

    def append(self, number: int, content: bytes) -> int:
        """Append an entry and return its checksum in the chain. Without a journal, this makes it durable.

        Raises LogFull, with nothing changed, if there is no room. After OSError the entry may be in the log.
        """

    def begin_sync(self) -> Callable[[], None]:
        """Return a function that syncs all entries appended so far. Any thread may call that function.

        Do not call `begin_sync` during an append. Both raise OSError.
        """

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        """Delete entries below a number, but keep about the last `kept_bytes` of them."""

    def close(self) -> None: ...


class Witness(Protocol):
    """Checks the paths of the store's files, and writes the commit record."""

    def check(self) -> None:
        """Raise OSError, Moved or LogMoved if an open file is no longer at its path."""

    def note(self, tx: int, epoch: int) -> None:
        """Record a durable commit. Raises OSError."""

    def sync(self) -> None:
        """Sync the commit record. Raises OSError."""

    def close(self) -> None: ...
