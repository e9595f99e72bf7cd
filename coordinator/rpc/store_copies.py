"""Gives other coordinators a copy of the metadata, over the links that they hold for that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import BinaryIO

from peacefs.coordinator.limits import backup_block_bytes
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError, ProtocolViolation
from peacefs.protocol.messages import CopyStore, Failure, Message, StorePart

from .datanode_links import DatanodeLink, Spawn, reply_late

#: Return a file with a copy of the metadata as it is now, which has no name any more.
MakeCopy = Callable[[], BinaryIO]
_AT_ONCE_MAX = 2


class StoreCopies:
    """Copies of the store, at most one per open link. Used from one event loop; threads read the files."""

    def __init__(self, make: MakeCopy | None, spawn: Spawn) -> None:
        self._make = make
        self._spawn = spawn
        self._copies: dict[DatanodeLink, tuple[BinaryIO, int]] = {}

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Handle a message of a coordinator that copies the metadata; it may send no other messages."""
        if not isinstance(message, CopyStore):
            raise ProtocolViolation(f"a coordinator may not send {type(message).__name__}")
        self._spawn(self._answer(link, message, tag))

    async def _answer(self, link: DatanodeLink, message: CopyStore, tag: int) -> None:
        try:
            reply: Message = await asyncio.to_thread(self._part, link, message.offset)
        except PeacefsError as error:
            reply = Failure(error.code, error.message)
        if link.is_closing():
            self.closed(link)
        reply_late(link, reply, tag)

    def _part(self, link: DatanodeLink, offset: int) -> StorePart:
        """Return a part of a copy, which is made at offset 0. Raises BadRequest, Overloaded, PeacefsError."""
        if self._make is None:
            raise BadRequest("this coordinator has no journal, so its metadata cannot be copied")
        if offset == 0:
            self.closed(link)
            if len(self._copies) >= _AT_ONCE_MAX:
                raise Overloaded("others are copying the metadata already; try again")
            file = self._make()
            self._copies[link] = file, file.seek(0, 2)
        if link not in self._copies:
            raise BadRequest("a copy begins at 0")
        file, total = self._copies[link]
        file.seek(offset)
        return StorePart(file.read(backup_block_bytes), total)

    def closed(self, link: DatanodeLink) -> None:
        """Forget the copy of a link."""
        copy = self._copies.pop(link, None)
        if copy is not None:
            with contextlib.suppress(OSError):
                copy[0].close()
