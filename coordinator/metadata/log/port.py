"""The ports to the log and to the files beside it, and the entry that is passed to them."""

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
        #: With a journal, the checksum of the entry before it there.
        self.previous: bytes | None = None
        #: True if the journal has the entry, or if there is none to write.
        self.is_journaled = is_journaled
        self.is_written = False
        #: Why the entry was undone, if it was.
        self.refusal: Exception | None = None
        #: The checksum of the entry in the chain of the log, once it is written.
        self.chain = 0


class Log(Protocol):
    """Keeps entries on the disk."""

    #: The last entry that a power cut cannot take from the log.
    synced: int

    def append(self, number: int, content: bytes) -> int:
        """Append an entry and return its checksum in the chain. Without a journal it is durable then.

        Raises LogFull if there is no room; then nothing was changed. After OSError the entry may be in the log.
        """

    def begin_sync(self) -> Callable[[], None]:
        """Return a function that syncs all entries appended so far; any thread may call it.

        Call `begin_sync` while nothing is appended. Both raise OSError.
        """

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        """Delete entries below a number, but keep about the last `kept_bytes` of them."""

    def close(self) -> None: ...


class Witness(Protocol):
    """Watches the paths of the files, and keeps the record of the last commit."""

    def check(self) -> None:
        """Raise OSError, Moved or LogMoved if a file that is written is no longer at its path."""

    def note(self, tx: int, epoch: int) -> None:
        """Record a durable commit. Raises OSError."""

    def sync(self) -> None:
        """Make the record durable. Raises OSError."""

    def close(self) -> None: ...
