"""The ports through which the metadata reads the image and has it written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from peacefs.protocol.ids import ChunkId

from .log.entry import Content
from .tables import Row, Table


class Image(Protocol):
    """Reads rows of the image, which has at least the entries that `Rows.imaged` was called with."""

    def one(self, table: Table, *key: Any) -> Row | None:
        """Return the row of a key, None if there is none."""

    def group(self, table: Table, first: Any) -> list[Row]:
        """Return the rows whose key begins with `first`, in the order of their keys."""

    def after(self, table: Table, first: Any, second: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows in order whose key begins with `first` and goes on with more than `second`."""

    def all(self, table: Table, after: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows of a table whose key begins with a value above `after`, in order."""

    def query(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows that an SQL statement selects."""

    def close(self) -> None: ...


class ImageKeeper(ABC):
    """Applies durable entries to the image. Used by the thread that owns the metadata."""

    #: The error after which the image can no longer be written or trusted, if there was one.
    fault: BaseException | None = None

    @abstractmethod
    def begin(self, imaged: Callable[[int], None]) -> None:
        """Call `imaged` from now on with the last entry that the image has, in the owner's thread."""

    @abstractmethod
    def durable(self, number: int, chain: int, content: Content) -> None:
        """Take an entry that is in the log, to be applied."""

    @abstractmethod
    def catch_up(self) -> None:
        """Wait until the image has all durable entries. Raises the fault."""

    @abstractmethod
    def imaged(self) -> Any:
        """Catch up and return a connection to the image."""

    @abstractmethod
    def tend(self, *, idle: bool) -> int | None:
        """Do periodic work. Return the last entry up to which the image is synced, if that has changed.

        Raises the fault.
        """

    @abstractmethod
    def scrub(self, pages: int) -> Exception | None:
        """Compare the next pages with their checksums. Return the error if one of them is damaged."""

    @abstractmethod
    def apply_statements(
        self, content: bytes, journal_number: int, chunks: set[ChunkId], tables: set[str]
    ) -> None:
        """Apply an entry of the previous release to the image, after all durable entries.

        Adds the chunks and tables that it changes to `chunks` and `tables`.
        """

    @abstractmethod
    def is_fault(self, error: Exception) -> bool:
        """Return whether an error means that the image cannot be read. Other errors are those of a request."""

    @abstractmethod
    def finish(self) -> None:
        """Catch up. Does nothing if the image has failed or the disk is full, since the log has all entries."""

    @abstractmethod
    def close(self) -> None: ...
