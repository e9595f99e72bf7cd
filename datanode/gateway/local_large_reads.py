"""Reads large chunks on this datanode's own disks for its gateway, without the data server.

The coordinator sends each reader to a datanode that holds the data. This is only a shortcut: from the first byte
that it does not provide in time, the gateway reads like any client, from any replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from peacefs.datanode.limits import gateway_downloads_max, gateway_local_read_timeout_s
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.protocol.errors import BadRequest, PeacefsError
from peacefs.protocol.limits import KIB
from peacefs.protocol.messages import ChunkLayout, ReadChunk
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.service.body_socket import Turn

# Maximum number of pieces of local large chunks that are read at once, and their size. Per file, one piece is
# sent, one waits and one is read: small enough that all stay in a CPU cache.
gateway_local_pieces_max: Final = 8
gateway_local_piece_bytes: Final = 512 * KIB


class LocalLargeReads:
    """Local reads of large chunks, for one gateway. Belongs to the event loop; close it after that.

    It has a few threads of its own. A disk that hangs can block only these.
    """

    def __init__(
        self, server: ChunkServer, driver: ThreadDriver, *, timeout_s: float = gateway_local_read_timeout_s
    ) -> None:
        self._server = server
        self._driver = driver
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(gateway_local_pieces_max, thread_name_prefix="gateway-pieces")
        self._under_way = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def open(self, chunk: ChunkLayout, offset: int, length: int) -> LocalChunk | None:
        """Open a range of a chunk; None if no replica is here or too many pieces are waiting."""
        if not self._server.has(chunk.chunk) or self._under_way >= gateway_downloads_max:
            return None
        request = ReadChunk(chunk.token, chunk.chunk, chunk.version, offset, length)
        return LocalChunk(self._server, request, self._driver, self._run, self._timeout_s)

    def _run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        self._under_way += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)
        running.add_done_callback(self._ended)
        return running

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not running.cancelled():
            running.exception()  # Ignore the error: a waiting reader receives it from the future.


class LocalChunk:
    """A range of one chunk, read from this datanode's disk. `Pieces` uses it, on the event loop.

    One call at a time. If `next_piece` returns None, or `send` returns False, only `close` may follow.
    """

    def __init__(
        self,
        server: ChunkServer,
        request: ReadChunk,
        driver: ThreadDriver,
        run: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        timeout_s: float,
    ) -> None:
        self._server = server
        self._request = request
        self._driver = driver
        self._run = run
        self._timeout_s = timeout_s
        self._plan: ReadPlan | None = None
        self._unread = request.length
        self._reading: asyncio.Future[Any] | None = None
        self._is_over = False

    async def next_piece(self) -> memoryview | None:
        """Return the next verified bytes; None if they cannot be read here, or not in time."""
        self._reading = reading = self._run(self._read)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(reading)
        except (TimeoutError, PeacefsError):
            return None

    async def send(self, turn: Turn) -> bool:
        """Have a thread send verified pieces until the turn or the range ends.

        Return False if the next bytes cannot be read here, or not in time; the turn has then ended.
        """
        self._reading = sending = self._run(partial(self._send, turn))
        before = -1
        while turn.sent != before:
            before = turn.sent
            try:
                async with asyncio.timeout(self._timeout_s):
                    await asyncio.shield(sending)
                    return True
            except TimeoutError:
                continue
            except PeacefsError:
                break
        turn.end()
        return False

    def _send(self, turn: Turn) -> None:
        while self._unread and turn.send(self._read()):
            pass

    def _read(self) -> memoryview:
        piece: memoryview = self._driver.run(self._next_piece())
        self._unread -= len(piece)
        return piece

    def _next_piece(self) -> fx.Steps[memoryview]:
        if self._is_over:
            raise BadRequest("nobody waits for this piece any more")
        if self._plan is None:
            self._plan = yield from self._server.open(self._request)
        return (yield from self._server.read_piece(self._plan, self._request, gateway_local_piece_bytes))

    def close(self) -> None:
        """Close the file. If it is still being read, it is closed when that read ends."""
        self._is_over = True
        if self._reading is not None:
            self._reading.add_done_callback(self._let_go)

    def _let_go(self, reading: asyncio.Future[Any]) -> None:
        if self._plan is not None and self._plan.at < self._plan.end:
            self._run(partial(self._driver.run, self._server.close(self._plan)))
