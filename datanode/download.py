"""One file, or a range of it, on its way to an HTTP client: fetched on threads, sent by the event loop.

What its first piece holds whole, as it does most of a checkpoint's files, is fetched by one turn of one thread.
Of what is longer, one piece is on its way to the client while the next is fetched; no more is held. What cannot be
fetched ends the connection before its announced length: a short body never looks whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from peacefs.client.file_reader import FileReader
from peacefs.protocol import effects as fx
from peacefs.protocol.asgi import Receive, Send, client_watch
from peacefs.protocol.errors import ChunkUnavailable, PathError, PeacefsError
from peacefs.protocol.messages import GetLayout, Layout
from peacefs.protocol.webhdfs_answers import octet_headers
from peacefs.protocol.webhdfs_redirects import ReadFile

log = logging.getLogger("peacefs.gateway")

Run = Callable[[fx.Steps[bytes | None]], asyncio.Future[bytes | None]]


@dataclass(frozen=True, slots=True)
class Begun:
    """The first piece of an answer of `length` bytes; `reader` gives the rest, None where that was all."""

    length: int
    first: bytes
    reader: FileReader | None


def begin(wanted: ReadFile) -> fx.Steps[Begun]:
    """Finds the file and reads its first piece. Raises what keeps it from being read."""
    layout = wanted.layout or (yield from fx.call(GetLayout(wanted.token), Layout))
    if wanted.offset > layout.length:
        raise PathError(f"Offset={wanted.offset} out of the range [0, {layout.length}]; OPEN, path={wanted.path}")
    rest = layout.length - wanted.offset
    length = rest if wanted.length is None else min(rest, wanted.length)
    reader = FileReader(wanted.token, layout, wanted.offset, length)
    try:
        first = (yield from _next_piece(reader)) or b""
    except ChunkUnavailable:
        # A file that was deleted meanwhile is told from one whose replicas are lost.
        yield from fx.call(GetLayout(wanted.token), Layout)
        raise
    if len(first) < length:
        return Begun(length, first, reader)
    yield from _close(reader, read_to_end=True)
    return Begun(length, first, None)


async def send_whole(send: Send, data: bytes) -> None:
    """An answer that is all there."""
    await send({"type": "http.response.start", "status": 200, "headers": octet_headers(len(data))})
    await send({"type": "http.response.body", "body": data})


class Download:
    """The rest of a file. Belongs to the event loop; `reader` is used by one thread at a time."""

    def __init__(self, path: str, begun: Begun, reader: FileReader, run: Run) -> None:
        self._path = path
        self._begun = begun
        self._unsent = begun.length
        self._reader = reader
        self._run = run
        self._fetching: asyncio.Future[bytes | None] | None = None

    async def send(self, receive: Receive, send: Send) -> None:
        try:
            async with client_watch(receive) as hung_up:
                headers = octet_headers(self._begun.length)
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send_pieces(send, hung_up)
        except PeacefsError as fault:
            log.warning("%r broke off while it was read: %s", self._path, fault)
        finally:
            if self._fetching is not None:
                with contextlib.suppress(PeacefsError):
                    await asyncio.shield(self._fetching)
            await self._run(_close(self._reader, read_to_end=self._unsent == 0))

    async def _send_pieces(self, send: Send, hung_up: asyncio.Task[None]) -> None:
        piece: bytes | None = self._begun.first
        while piece:
            self._unsent -= len(piece)
            if self._unsent:
                self._fetching = self._run(_next_piece(self._reader))
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if not self._unsent:
                await send({"type": "http.response.body", "body": b""})
                return
            if hung_up.done():
                return
            assert self._fetching is not None
            piece = await asyncio.shield(self._fetching)
        raise PeacefsError(f"it ends {self._unsent} bytes early")


def _next_piece(reader: FileReader) -> fx.Steps[bytes | None]:
    """A copy: the reader uses its buffer again while the piece waits to be sent."""
    piece = yield from reader.next_piece()
    return None if piece is None else bytes(piece)


def _close(reader: FileReader, *, read_to_end: bool) -> fx.Steps[bytes | None]:
    if read_to_end:
        yield from reader.next_piece()  # there is none, upon which the connection is kept for others
    yield from reader.close()
    return None
