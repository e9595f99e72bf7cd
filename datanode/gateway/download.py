"""Sends one file, or a range of it, to an HTTP client: threads fetch it; they or the event loop send it.

A file that fits in its first piece is sent at once. For a longer file, a thread sends what it fetches while the
client accepts it, and leaves the rest of a piece to the event loop, which can wait. Over TLS the loop sends
everything: one piece waits for the client while the next is fetched, and no more is held. If a piece cannot be
fetched, the connection ends before the announced length, so that a short body never looks complete.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from peacefs.client.transfer.file_reader import FileReader
from peacefs.protocol.asgi import Receive, Send, client_watch
from peacefs.protocol.errors import ChunkUnavailable, PathError, PeacefsError
from peacefs.protocol.messages import GetLayout, Layout
from peacefs.protocol.webhdfs.answers import octet_headers
from peacefs.protocol.webhdfs.redirects import ReadFile
from peacefs.runtime import effects as fx
from peacefs.service.body_socket import BodySocket, Turn

from .local_large_reads import LocalChunk, LocalLargeReads
from .token_renewal import ReadTokenRenewal, Run
from .url_tokens import UrlTokens

log = logging.getLogger("peacefs.gateway")

Piece = bytes | memoryview


class Pieces:
    """A range of a file, read from this datanode's disks as far as possible, and otherwise like any client.

    `begin` makes it, one per answer. Belongs to the event loop; its user must call `close`.
    """

    def __init__(
        self,
        token: str,
        layout: Layout,
        offset: int,
        length: int,
        own: LocalLargeReads,
        run: Run,
        renewal: ReadTokenRenewal | None,
    ) -> None:
        """`renewal` renews `token`; None for an empty file."""
        self._token = token
        self._renewal = renewal
        self._layout = layout
        self._at = offset
        self._end = offset + length
        self._own = own
        self._run = run
        self._local_chunk: LocalChunk | None = None
        self._own_end = offset
        self._reader: FileReader | None = None
        self._fetching: asyncio.Future[Any] | None = None

    @property
    def unread(self) -> int:
        """The number of bytes that have not been returned."""
        return self._end - self._at

    async def next(self) -> Piece | None:
        """Return the next verified bytes; None after the last. Raises the error of the read."""
        if not self.unread:
            return None
        if self._renewal is not None:
            self._renewal.check()
        piece: Piece | None = None
        if self._reader is None and (piece := await self._next_own()) is None:
            self._read_elsewhere()
        if self._reader is not None:
            self._fetching = self._run(_next_piece(self._reader))
            piece = await asyncio.shield(self._fetching)
        if piece is not None:
            self._at += len(piece)
        return piece

    async def send(self, turn: Turn) -> None:
        """Have a thread send verified bytes. `turn` records how many, and the unsent rest.

        Raises the error of the read.
        """
        if self._renewal is not None:
            self._renewal.check()
        if self._reader is None:
            local_chunk = self._own_chunk()
            is_here = local_chunk is not None and await local_chunk.send(turn)
            self._at += turn.taken
            if not is_here:
                self._read_elsewhere()
            return
        self._fetching = self._run(_send_next(self._reader, turn))
        await asyncio.shield(self._fetching)
        self._at += turn.taken

    async def _next_own(self) -> Piece | None:
        local_chunk = self._own_chunk()
        return None if local_chunk is None else await local_chunk.next_piece()

    def _own_chunk(self) -> LocalChunk | None:
        if self._at == self._own_end:
            self._local_chunk = self._local_chunk_at()
        return self._local_chunk

    def _read_elsewhere(self) -> None:
        self._reader = FileReader(self._token, self._layout, self._at, self.unread)

    def _local_chunk_at(self) -> LocalChunk | None:
        """Return the requested part of the current chunk, if a replica is here."""
        begin = 0
        for chunk in self._layout.chunks:
            if begin + chunk.length > self._at:
                self._own_end = min(begin + chunk.length, self._end)
                return self._own.open(chunk, self._at - begin, self._own_end - self._at)
            begin += chunk.length
        return None

    async def close(self) -> None:
        if self._local_chunk is not None:
            self._local_chunk.close()
        if self._fetching is not None:
            await asyncio.wait([self._fetching])  # The reader may be used by one thread at a time.
        if self._reader is not None:
            await self._run(_close(self._reader, read_to_end=not self.unread))


async def begin(
    wanted: ReadFile,
    known: Layout | None,
    own: LocalLargeReads,
    run: Run,
    tokens: UrlTokens,
) -> Pieces:
    """Locate the file, unless its layout is `known`, and start reading. Raises the coordinator's error."""
    layout = known or await run(fx.call(GetLayout(wanted.token), Layout))
    if wanted.offset > layout.length:
        raise PathError(f"Offset={wanted.offset} out of the range [0, {layout.length}]; OPEN, path={wanted.path}")
    rest = layout.length - wanted.offset
    length = rest if wanted.length is None else min(rest, wanted.length)
    token = layout.token or wanted.token
    renewal = tokens.renewal(run, token, layout.chunks[0].token) if layout.chunks else None
    return Pieces(token, layout, wanted.offset, length, own, run, renewal)


async def send_whole(send: Send, data: Piece) -> None:
    """Send an answer whose data is complete."""
    await send({"type": "http.response.start", "status": 200, "headers": octet_headers(len(data))})
    await send({"type": "http.response.body", "body": data})


async def send_pieces(
    wanted: ReadFile, pieces: Pieces, run: Run, receive: Receive, send: Send, client: BodySocket | None
) -> None:
    """Send the whole answer. Threads send it if there is a socket to the `client`.

    Raises an error before the first piece only; later errors are logged and end the answer early.
    """
    length = pieces.unread
    try:
        first = await pieces.next()
    except ChunkUnavailable:
        # Distinguish a file deleted meanwhile from one whose replicas are lost.
        await run(fx.call(GetLayout(wanted.token), Layout))
        raise
    if first is None or len(first) == length:
        await send_whole(send, first or b"")
        return
    try:
        async with client_watch(receive) as hung_up:
            await send({"type": "http.response.start", "status": 200, "headers": octet_headers(length)})
            if client is None:
                await _send_rest(first, pieces, send, hung_up)
            else:
                await _send_from_threads(first, pieces, send, client, hung_up)
    except PeacefsError as fault:
        log.warning("reading %r failed in the middle: %s", wanted.path, fault)


async def _send_rest(piece: Piece | None, pieces: Pieces, send: Send, hung_up: asyncio.Task[None]) -> None:
    while pieces.unread:
        fetching = asyncio.ensure_future(pieces.next())
        try:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await asyncio.wait([fetching])
        piece = fetching.result()
        if piece is None:
            raise PeacefsError(f"it ends {pieces.unread} bytes early")
        if hung_up.done():
            return
    await send({"type": "http.response.body", "body": piece})


async def _send_from_threads(
    piece: Piece | None, pieces: Pieces, send: Send, client: BodySocket, hung_up: asyncio.Task[None]
) -> None:
    try:
        while pieces.unread:
            await send({"type": "http.response.body", "body": piece or b"", "more_body": True})
            turn = await client.turn()
            if turn is not None:
                try:
                    await pieces.send(turn)
                finally:
                    client.account(turn.end())
            if turn is None or turn.is_client_gone:
                client.abort()
                await asyncio.wait([hung_up])
                return
            piece = turn.rest
        await send({"type": "http.response.body", "body": piece or b""})
    finally:
        client.close()


def _send_next(reader: FileReader, turn: Turn) -> fx.Steps[None]:
    """Send pieces until the client accepts no more. The rest is copied, because the reader reuses its buffer."""
    while (piece := (yield from reader.next_piece())) is not None and turn.send(piece):
        pass
    if turn.rest is not None:
        turn.rest = memoryview(bytes(turn.rest))


def _next_piece(reader: FileReader) -> fx.Steps[bytes | None]:
    """Return a copy of the next piece, because the reader reuses its buffer while the piece waits to be sent."""
    piece = yield from reader.next_piece()
    return None if piece is None else bytes(piece)


def _close(reader: FileReader, *, read_to_end: bool) -> fx.Steps[None]:
    if read_to_end:
        yield from reader.next_piece()  # Returns None, after which the connection is kept for others.
    yield from reader.close()
