"""One request body on its way into the cluster: from the event loop that receives it to the thread that writes.

Only as much is received as there is room for, in the stream and in the budget of all uploads; more waits in the
client's and the kernel's buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.protocol.asgi import Receive
from peacefs.protocol.errors import PeacefsError, PeerTimeout, PeerUnreachable
from peacefs.protocol.runtime import effects as fx

from .buffer_budget import BufferBudget, BufferShare


async def body_pieces(receive: Receive, idle_timeout_s: float) -> AsyncIterator[bytes]:
    """The body as it comes. Raises PeerTimeout when the client falls silent, PeerUnreachable when it goes."""
    more = True
    while more:
        try:
            async with asyncio.timeout(idle_timeout_s):
                event = await receive()
        except TimeoutError:
            raise PeerTimeout(f"the client sent nothing for {idle_timeout_s:g} s; nothing was written") from None
        if event["type"] == "http.disconnect":
            raise PeerUnreachable("the client hung up in the middle of the file; nothing was written")
        if piece := event.get("body"):
            yield piece
        more = event.get("more_body", False)


class Upload:
    """Belongs to the event loop; `stream` is what the writing thread reads from."""

    def __init__(
        self, pieces: AsyncIterator[bytes], budget: BufferBudget, chunk_bytes: int, client: str = ""
    ) -> None:
        self._pieces = pieces
        self._share = BufferShare(budget, client)
        self._loop = asyncio.get_running_loop()
        self.stream = _MeteredStream(chunk_bytes, self)

    async def receive_up_to(self, bytes_max: int) -> bool:
        """Takes in the body's first bytes while nobody writes yet; True if the body ended among them."""
        received = 0
        async for piece in self._pieces:
            await self._share.take(len(piece))
            self.stream.feed(piece)
            received += len(piece)
            if received >= bytes_max:
                return False
        self.stream.finish()
        return True

    async def receive_rest(self) -> None:
        """Raises the writer's error if that gives up."""
        async for piece in self._pieces:
            await self._share.take(len(piece))
            room = self.stream.feed(piece)
            if room is not None:
                await self._until_fired(room)
        self.stream.finish()

    async def _until_fired(self, ticket: fx.Ticket) -> None:
        fired = asyncio.Event()
        ticket.when_fired(lambda: self._on_loop(fired.set))
        await fired.wait()

    def settle(self, count: int) -> None:
        """The writer needs `count` bytes no more. From any thread."""
        self._on_loop(lambda: self._share.give_back(count))

    def close(self) -> None:
        """Nobody writes any more: gives back what is left."""
        self._share.close()

    def abort(self, error: PeacefsError) -> None:
        self.stream.abort(error)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
            self._loop.call_soon_threadsafe(call)


class _MeteredStream(ByteStream):
    """Notices when a chunk is done: the writer takes the next one's first byte only then."""

    def __init__(self, chunk_bytes: int, upload: Upload) -> None:
        super().__init__()
        self._chunk_bytes = chunk_bytes
        self._upload = upload
        self._taken_bytes = 0
        self._settled_bytes = 0

    def take(self, bytes_max: int) -> memoryview:
        piece = super().take(bytes_max)
        self._taken_bytes += len(piece)
        done = max(self._taken_bytes - 1, 0) // self._chunk_bytes * self._chunk_bytes
        if done > self._settled_bytes:
            self._upload.settle(done - self._settled_bytes)
            self._settled_bytes = done
        return piece
