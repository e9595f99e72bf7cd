"""Reads small files on this datanode's own disk for its gateway, without the data server.

A restarting query opens hundreds of small files in a row, and the coordinator sends each reader to a datanode that
holds the data. Most are in the page cache, and the event loop reads those itself, because a thread would cost more
than everything else. A thread reads only if the loop would have to wait (decision 21).

This is only a shortcut: if it does not provide the bytes at once, the gateway reads any replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

from peacefs.datanode import metrics
from peacefs.datanode.limits import gateway_local_read_timeout_s
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.protocol.messages import ChunkLayout, ReadChunk
from peacefs.protocol.webhdfs.redirects import ReadFile
from peacefs.runtime import effects as fx
from peacefs.runtime.page_cache_driver import PageCacheDriver, WouldWait
from peacefs.runtime.thread_driver import ThreadDriver

# Maximum number of local small files that threads read at once. If a disk hangs, it may block all of these
# threads; such files are then read from other replicas.
gateway_local_reads_max: Final = 4


_read_by_loop, _read_by_thread = (metrics.local_small_reads.labels(by) for by in ("loop", "thread"))


class LocalSmallReads:
    """Local reads of small files, for one gateway. Belongs to the event loop; close it after that.

    It has a few threads of its own. A disk that hangs can block only these.
    """

    def __init__(
        self,
        server: ChunkServer,
        driver: ThreadDriver,
        *,
        timeout_s: float = gateway_local_read_timeout_s,
    ) -> None:
        self._server = server
        self._driver = driver
        self._timeout_s = timeout_s
        self._in_memory = PageCacheDriver(driver.kept_files)
        self._threads = ThreadPoolExecutor(gateway_local_reads_max, thread_name_prefix="gateway-own")
        self._under_way = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, wanted: ReadFile, chunks: Sequence[ChunkLayout]) -> bytes | None:
        """Return the verified bytes of the whole answer. Return None if this host cannot read all of it in time.

        `chunks` are the file's chunks, as far as the token lists them.
        """
        request = _request(wanted, chunks)
        if request is None:
            return None
        try:
            data = self._in_memory.run(self._read(request))
        except WouldWait:
            return await self._read_by_thread(request)
        _read_by_loop.inc()
        return data

    async def _read_by_thread(self, request: ReadChunk) -> bytes | None:
        """Read on a thread, whose driver keeps the opened file for later reads."""
        if self._under_way >= gateway_local_reads_max:
            return None
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._threads, copy_context().run, self._driver.run, self._read(request))
        self._under_way += 1
        reading.add_done_callback(self._ended)
        _read_by_thread.inc()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(reading)
        except TimeoutError:
            return None

    def _ended(self, reading: asyncio.Future[bytes | None]) -> None:
        self._under_way -= 1
        if not reading.cancelled():
            reading.exception()  # Ignore the error: a waiting reader receives it from the future.

    def _read(self, request: ReadChunk) -> fx.Steps[bytes | None]:
        try:
            data = yield from self._server.read_small(request)
        except PeacefsError:
            return None
        return data if len(data) == request.length else None


def _request(wanted: ReadFile, chunks: Sequence[ChunkLayout]) -> ReadChunk | None:
    """Return the requested range of a small file with one chunk; None for other files and empty ranges."""
    if len(chunks) != 1 or chunks[0].length > small_chunk_bytes_max:
        return None
    (chunk,) = chunks
    rest = chunk.length - wanted.offset
    length = rest if wanted.length is None else min(rest, wanted.length)
    return ReadChunk(chunk.token, chunk.chunk, chunk.version, wanted.offset, length) if length > 0 else None
