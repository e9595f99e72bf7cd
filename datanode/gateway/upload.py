"""One request body on its way into the cluster: from the event loop that receives it to the thread that writes.

Only as much is received as there is room for, in the stream and in the budget of all uploads; more waits in the
client's and the kernel's buffers. A body may be cut into parts, each a stream of its own, which are written one
after the other.
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
    """The body as it comes. Raises PeerTimeout when the client falls silent, PeerUnreachable when it goes."""
    more = True
    while more:
        event = await _next_event(receive, idle_timeout_s)
        if event["type"] == "http.disconnect":
            raise PeerUnreachable("the client hung up in the middle of the file; nothing was written")
        if piece := event.get("body"):
            yield piece
        more = event.get("more_body", False)


async def _next_event(receive: Receive, idle_timeout_s: Callable[[], float]) -> Message:
    """Wait for the next event; the time for which a client may be silent can change meanwhile."""
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
    """Belongs to the event loop; `stream` is what the writing thread reads from."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        budget: BufferBudget,
        chunk_bytes: int,
        client: str = "",
        *,
        first_buffer_bytes: int = gateway_first_buffer_bytes,
    ) -> None:
        """A part with `first_buffer_bytes` or more is long: it is written while it comes."""
        self.pieces = pieces
        self._first_buffer_bytes = first_buffer_bytes
        self._chunk_bytes = chunk_bytes
        self._share = BufferShare(budget, client)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.stream = BodyPart(chunk_bytes, self)

    async def take_in(self, piece: bytes) -> fx.Ticket | None:
        """Take a piece in; one that gets a ticket waits for it. Raises the writer's error, Overloaded."""
        await self._share.take(len(piece))
        return self.stream.feed(piece)

    @property
    def is_long(self) -> bool:
        """Return whether more waits than a first buffer holds."""
        return self.stream.waiting_bytes >= self._first_buffer_bytes

    def next_part(self) -> BodyPart:
        """Return the part as it is, which is at its end now; what comes from now on is another."""
        part, self.stream = self.stream, BodyPart(self._chunk_bytes, self)
        part.finish()
        return part

    async def until_fired(self, ticket: fx.Ticket) -> None:
        """Wait until a writer has made room."""
        fired = asyncio.Event()
        ticket.when_fired(lambda: self._on_loop(fired.set))
        await fired.wait()

    def settle(self, count: int) -> None:
        """The writer needs `count` bytes no more. From any thread."""
        self._on_loop(lambda: self.give_back(count))

    def give_back(self, count: int) -> None:
        """The same, on the event loop."""
        if not self._is_closed:
            self._share.give_back(count)

    def close(self) -> None:
        """Nobody writes any more: gives back what is left."""
        self._is_closed = True
        self._share.close()

    def abort(self, error: PeacefsError) -> None:
        self.stream.abort(error)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
            self._loop.call_soon_threadsafe(call)


class BodyPart(ByteStream):
    """Notices when a chunk is done: the writer takes the next one's first byte only then."""

    def __init__(self, chunk_bytes: int, upload: Upload) -> None:
        super().__init__()
        self._chunk_bytes = chunk_bytes
        self._upload = upload
        self._fed_bytes = 0
        self._taken_bytes = 0
        self._settled_bytes = 0

    @property
    def room_in_chunk(self) -> int:
        """Return how many more bytes fill the chunk that is being fed."""
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
        """Take the whole of a part that nobody else reads."""
        return b"".join(iter(lambda: super(BodyPart, self).take(self._fed_bytes), b""))

    def settle_rest(self) -> None:
        """Nobody reads it any more."""
        self._upload.give_back(self._fed_bytes - self._settled_bytes)
        self._settled_bytes = self._fed_bytes
