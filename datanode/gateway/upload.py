"""One request body, passed from the event loop that receives it to the thread that writes it.

A piece is received only when the stream and the budget of all uploads have room. Until then, the rest waits in the
buffers of the client and the kernel. A body may be cut into parts, each with its own stream, written in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.protocol.asgi import Message, Receive
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeacefsError, PeerTimeout, PeerUnreachable
from peacefs.protocol.limits import MIB
from peacefs.runtime import effects as fx

from .buffer_budget import BufferBudget, BufferShare

gateway_first_buffer_bytes: Final = 1 * MIB


async def body_pieces(receive: Receive, idle_timeout_s: Callable[[], float]) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises PeerTimeout if the client is silent, PeerUnreachable if it hangs up."""
    more = True
    while more:
        event = await _next_event(receive, idle_timeout_s)
        if event["type"] == "http.disconnect":
            raise PeerUnreachable("the client hung up in the middle of the file; nothing was written")
        if piece := event.get("body"):
            yield piece
        more = event.get("more_body", False)


async def _next_event(receive: Receive, idle_timeout_s: Callable[[], float]) -> Message:
    """Wait for the next event. The allowed silence may change during the wait."""
    began_s = asyncio.get_running_loop().time()
    patience_s = idle_timeout_s()
    while True:
        try:
            async with asyncio.timeout_at(began_s + patience_s):
                return await receive()
        except TimeoutError:
            if idle_timeout_s() <= patience_s:
                raise PeerTimeout(f"the client sent nothing for {patience_s:g} s; nothing was written") from None
            patience_s = idle_timeout_s()


class Upload:
    """A body being received. Belongs to the event loop; the writing thread reads from `stream`."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        budget: BufferBudget,
        chunk_bytes: int,
        client: str = "",
        *,
        first_buffer_bytes: int = gateway_first_buffer_bytes,
    ) -> None:
        """Begin an upload. A part with `first_buffer_bytes` or more is written while it arrives."""
        self.pieces = pieces
        self._first_buffer_bytes = first_buffer_bytes
        self._chunk_bytes = chunk_bytes
        self._share = BufferShare(budget, client)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.stream = BodyPart(chunk_bytes, self)

    async def take_in(self, piece: bytes) -> fx.Ticket | None:
        """Add a piece. If a ticket is returned, wait for it first. Raises the writer's error, Overloaded."""
        await self._share.take(len(piece))
        return self.stream.feed(piece)

    @property
    def is_long(self) -> bool:
        """Return whether more bytes wait than a first buffer holds."""
        return self.stream.waiting_bytes >= self._first_buffer_bytes

    def next_part(self) -> BodyPart:
        """End the current part and return it. Later pieces go to a new part."""
        part, self.stream = self.stream, BodyPart(self._chunk_bytes, self)
        part.finish()
        return part

    async def until_fired(self, ticket: fx.Ticket) -> None:
        """Wait until the writer has made room."""
        fired = asyncio.Event()
        ticket.when_fired(lambda: self._on_loop(fired.set))
        await fired.wait()

    def settle(self, count: int) -> None:
        """Return `count` bytes that the writer no longer needs to the budget. May be called on any thread."""
        self._on_loop(lambda: self.give_back(count))

    def give_back(self, count: int) -> None:
        """Return `count` bytes to the budget, on the event loop."""
        if not self._is_closed:
            self._share.give_back(count)

    def close(self) -> None:
        """Return all remaining bytes to the budget. Nothing may be written after this."""
        self._is_closed = True
        self._share.close()

    def abort(self, error: PeacefsError) -> None:
        self.stream.abort(error)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
            self._loop.call_soon_threadsafe(call)


class BodyPart(ByteStream):
    """A part of a body. It returns a chunk's bytes to the budget when the writer begins the next chunk."""

    def __init__(self, chunk_bytes: int, upload: Upload) -> None:
        super().__init__()
        self._chunk_bytes = chunk_bytes
        self._upload = upload
        self._fed_bytes = 0
        self._taken_bytes = 0
        self._settled_bytes = 0

    @property
    def room_in_chunk(self) -> int:
        """The number of bytes missing to complete the current chunk."""
        return self._chunk_bytes - self._fed_bytes % self._chunk_bytes

    def feed(self, data: Bytes) -> fx.Ticket | None:
        room = super().feed(data)
        self._fed_bytes += len(data)
        return room

    def take(self, bytes_max: int) -> memoryview:
        piece = super().take(bytes_max)
        self._taken_bytes += len(piece)
        done = max(self._taken_bytes - 1, 0) // self._chunk_bytes * self._chunk_bytes
        if done > self._settled_bytes:
            self._upload.settle(done - self._settled_bytes)
            self._settled_bytes = done
        return piece

    def take_all(self) -> bytes:
        """Take all bytes of a part that has no other reader."""
        return b"".join(iter(lambda: super(BodyPart, self).take(self._fed_bytes), b""))

    def settle_rest(self) -> None:
        """Return the remaining bytes to the budget, once the part is no longer read."""
        self._upload.give_back(self._fed_bytes - self._settled_bytes)
        self._settled_bytes = self._fed_bytes
