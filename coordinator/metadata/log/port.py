"""What the metadata asks of the log, and of what lies beside it; and the entry that is handed to it."""

from __future__ import annotations

from typing import Protocol

from peacefs.coordinator.metadata.tables import Row


class Sealed:
    """An entry that is to be made durable."""

    __slots__ = ("chain", "changes", "content", "epoch", "is_journaled", "is_written", "number", "refusal", "tx")

    def __init__(self, number: int, tx: int, epoch: int, changes: list[tuple[int, Row]], content: bytes) -> None:
        self.number = number
        self.tx = tx
        self.epoch = epoch
        self.changes = changes
        self.content = content
        #: The journal has it, or does not need it.
        self.is_journaled = False
        self.is_written = False
        #: Why it was undone, if so.
        self.refusal: Exception | None = None
        #: Its place in the chain of the log, once it is written.
        self.chain = 0


class Log(Protocol):
    """Where entries are made durable."""

    def append(self, number: int, content: bytes) -> int:
        """Return the place of the entry in the chain.

        Raises LogFull, and has changed nothing; OSError when nothing is known.
        """

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        """Entries below that number are needed no longer, but for the last ones of so many bytes."""

    def close(self) -> None: ...


class Witness(Protocol):
    """Looks after what lies beside the log: the place of the files, and the record of the last commit."""

    def check(self) -> None:
        """Raise OSError, or Moved, if what was written does not lie where the path leads."""

    def note(self, tx: int, epoch: int) -> None:
        """A commit is durable. Raises OSError."""

    def sync(self) -> None:
        """Make durable what was noted. Raises OSError."""

    def close(self) -> None: ...
