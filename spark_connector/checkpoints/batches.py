"""Which batches of a Spark checkpoint were begun, and which were committed.

Spark writes `offsets/N` before it runs batch N, and `commits/N` when the whole batch is done. In between the batch
is under way; a query that restarts from such a checkpoint runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from peacefs.client.control.names import ListingPage
from peacefs.client.control.values import ContentSummary
from peacefs.protocol.errors import FileNotFound


class Directories(Protocol):
    """The calls needed of a file system. `PeaceFileSystem` has them."""

    def pages(self, path: str) -> Iterator[ListingPage]: ...

    def content_summary(self, path: str) -> ContentSummary: ...


class Checkpoint:
    """The checkpoint at `path`, which need not exist yet."""

    def __init__(self, files: Directories, path: str) -> None:
        self._files = files
        self.path = path

    def begun(self) -> int | None:
        """Return the latest batch whose offsets are written."""
        return self._latest("offsets")

    def committed(self) -> int | None:
        """Return the latest batch that is done."""
        return self._latest("commits")

    def size(self) -> ContentSummary:
        """Return the number of files and bytes of the checkpoint."""
        return self._files.content_summary(self.path)

    def _latest(self, log: str) -> int | None:
        try:
            names = [entry.name for page in self._files.pages(f"{self.path}/{log}") for entry in page.entries]
        except FileNotFound:
            return None
        return max((int(name) for name in names if name.isdecimal()), default=None)
