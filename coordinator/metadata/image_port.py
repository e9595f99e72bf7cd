"""The port behind which the image is written: in this thread, or by a process beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from peacefs.protocol.ids import ChunkId

from .log.entry import Content


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
