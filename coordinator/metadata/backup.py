"""The interface by which a backup of the committed metadata is asked for, whatever engine stores it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class BackupCopy(Protocol):
    """A finished copy of the metadata of `size` bytes; `blocks` yields all of it, once."""

    size: int

    def blocks(self) -> AsyncIterator[bytes]:
        """Yield the copy in blocks."""


class BackupMaker(Protocol):
    """Makes copies while the coordinator serves."""

    async def make(self) -> BackupCopy:
        """Return a finished copy.

        Raises Overloaded while another is being made, PeacefsError when the disk cannot take it.
        """
