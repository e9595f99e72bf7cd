"""One file, or a range of it, on its way to an HTTP client: fetched on threads, sent by the event loop.

While one piece is on its way to the client, the next is fetched; no more is held. What cannot be fetched ends
the connection before its announced length: a short body never looks whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from peacefs.client.file_reader import FileReader
from peacefs.protocol import effects as fx
from peacefs.protocol.asgi import Receive, Send, client_watch
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.webhdfs_answers import octet_headers

log = logging.getLogger("peacefs.gateway")

Run = Callable[[fx.Steps[bytes | None]], asyncio.Future[bytes | None]]


class Download:
    """Belongs to the event loop; `reader` is used by one thread at a time."""

    def __init__(self, path: str, length: int, reader: FileReader, run: Run) -> None:
        self._path = path
        self._length = length
        self._unsent = length
        self._reader = reader
        self._run = run
        self._fetching = run(_next_piece(reader))

    async def fetch_first(self) -> None:
        """Raises what keeps the file from being read, while the client can still be told."""
        await asyncio.shield(self._fetching)

    async def send(self, receive: Receive, send: Send) -> None:
        try:
            async with client_watch(receive) as hung_up:
                await send({"type": "http.response.start", "status": 200, "headers": octet_headers(self._length)})
                await self._send_pieces(send, hung_up)
        except PeacefsError as fault:
            log.warning("%r broke off while it was read: %s", self._path, fault)
        finally:
            with contextlib.suppress(PeacefsError):
                await asyncio.shield(self._fetching)
            await self._run(_close(self._reader, read_to_end=self._unsent == 0))

    async def _send_pieces(self, send: Send, hung_up: asyncio.Task[None]) -> None:
        while self._unsent and not hung_up.done():
            piece = await asyncio.shield(self._fetching)
            if not piece:
                raise PeacefsError(f"it ends {self._unsent} bytes early")
            self._unsent -= len(piece)
            if self._unsent:
                self._fetching = self._run(_next_piece(self._reader))
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if not self._unsent:
            await send({"type": "http.response.body", "body": b""})


def _next_piece(reader: FileReader) -> fx.Steps[bytes | None]:
    """A copy: the reader uses its buffer again while the piece waits to be sent."""
    piece = yield from reader.next_piece()
    return None if piece is None else bytes(piece)


def _close(reader: FileReader, *, read_to_end: bool) -> fx.Steps[bytes | None]:
    if read_to_end:
        yield from reader.next_piece()  # there is none, upon which the connection is kept for others
    yield from reader.close()
    return None
