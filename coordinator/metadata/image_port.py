"""The ports behind which the image lies: it is read here, and written by this thread or a process beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from peacefs.protocol.ids import ChunkId

from .log.entry import Content
from .tables import Row, Table


class Image(Protocol):
    """The rows on the disk, at some entry that is not before the last one that `Rows.imaged` was told of."""

    def one(self, table: Table, *key: Any) -> Row | None:
        """Return the row of a key."""

    def group(self, table: Table, first: Any) -> list[Row]:
        """Return the rows whose key begins with `first`, in the order of their keys."""

    def after(self, table: Table, first: Any, second: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows of a group, those after the second part of a key, in order."""

    def all(self, table: Table, after: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows of a table, those whose first part of the key follows `after`, in order."""

    def query(self, statement: str, *values: Any) -> list[Row]:
        """Return what a statement of SQL gives."""

    def close(self) -> None: ...


class ImageKeeper(ABC):
    """Brings entries that are durable to the image. Used by the thread that owns the metadata."""

    #: Why the image can no longer be written or trusted, if so.
    fault: BaseException | None = None

    @abstractmethod
    def begin(self, imaged: Callable[[int], None]) -> None:
        """Say from now on to `imaged`, in the owner's thread, up to which entry the image has all."""

    @abstractmethod
    def durable(self, number: int, chain: int, content: Content) -> None:
        """An entry is in the log."""

    @abstractmethod
    def catch_up(self) -> None:
        """Return when the image has all entries that are durable. Raises the fault."""

    @abstractmethod
    def imaged(self) -> Any:
        """Catch up and return a connection to the image."""

    @abstractmethod
    def tend(self, *, idle: bool) -> int | None:
        """Do what is due; return up to which entry the image is synced, if that is new. Raises the fault."""

    @abstractmethod
    def scrub(self, pages: int) -> Exception | None:
        """Verify the next so many pages; return what is wrong."""

    @abstractmethod
    def apply_statements(
        self, content: bytes, journal_number: int, chunks: set[ChunkId], tables: set[str]
    ) -> None:
        """Apply an entry of the release before to the image, after all that is durable; note what it touched."""

    @abstractmethod
    def is_fault(self, error: Exception) -> bool:
        """Return whether an error says that the image cannot be read, rather than something of a request."""

    @abstractmethod
    def finish(self) -> None:
        """Catch up, unless the image has failed or there is no room: the log has it all."""

    @abstractmethod
    def close(self) -> None: ...
