"""Small files that lie on this datanode's own disk, for its gateway: read there, not through the data server.

A query that starts again opens hundreds of them one after another, and the coordinator sends each reader to a
datanode that has what it wants. Most are in the kernel's memory, from where the event loop takes them itself: a
thread to do it costs more than all the rest. Only where it would wait, a thread reads (decision 21).

This is a short cut and no other way to read: whatever keeps it from giving the bytes at once, the gateway reads as
any client does, from whichever replica can give them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass

from peacefs.datanode import metrics
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import (
    gateway_kept_file_s,
    gateway_kept_files_max,
    gateway_local_read_timeout_s,
    gateway_local_reads_max,
    small_chunk_bytes_max,
)
from peacefs.protocol.messages import ChunkLayout, ReadChunk
from peacefs.protocol.runtime import effects as fx
from peacefs.protocol.runtime.disk_files import DiskFile
from peacefs.protocol.runtime.page_cache_driver import PageCacheDriver, WouldWait
from peacefs.protocol.runtime.thread_driver import ThreadDriver
from peacefs.protocol.webhdfs.redirects import ReadFile

_read_by_loop, _read_by_thread = (metrics.local_small_reads.labels(by) for by in ("loop", "thread"))


@dataclass(frozen=True, slots=True)
class _Read:
    """A thread's result: the bytes, and the file, opened once more to be kept."""

    data: bytes | None
    file: fx.File | None = None


class LocalSmallReads:
    """Belongs to the event loop; `close` it after that has ended.

    Its threads are few and its own: a disk that hangs takes these, and no other of the gateway's.
    """

    def __init__(
        self,
        server: ChunkServer,
        driver: ThreadDriver,
        *,
        timeout_s: float = gateway_local_read_timeout_s,
        kept_s: float = gateway_kept_file_s,
    ) -> None:
        self._server = server
        self._driver = driver
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._in_memory = PageCacheDriver(driver.wall_clock, files_max=gateway_kept_files_max)
        self._threads = ThreadPoolExecutor(gateway_local_reads_max, thread_name_prefix="gateway-own")
        self._under_way = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._in_memory.close()

    async def read(self, wanted: ReadFile, chunks: Sequence[ChunkLayout]) -> bytes | None:
        """The whole answer, verified; None where it is not to be had here, or not at once.

        `chunks` are those of the file, as far as its token names them.
        """
        request = _request(wanted, chunks)
        if request is None:
            return None
        try:
            data = self._in_memory.run(self._read(request))
        except WouldWait as wait:
            return await self._read_by_thread(request, wait.path)
        _read_by_loop.inc()
        return data

    async def _read_by_thread(self, request: ReadChunk, path: str | None) -> bytes | None:
        if self._under_way >= gateway_local_reads_max:
            return None
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(
            self._threads, copy_context().run, self._driver.run, self._read_and_open(request, path)
        )
        self._under_way += 1
        reading.add_done_callback(lambda ended: self._ended(ended, path))
        _read_by_thread.inc()
        try:
            async with asyncio.timeout(self._timeout_s):
                return (await asyncio.shield(reading)).data
        except TimeoutError:
            return None

    def _ended(self, reading: asyncio.Future[_Read], path: str | None) -> None:
        self._under_way -= 1
        # An error is known already, unless nobody waits any more.
        if reading.cancelled() or reading.exception() is not None:
            return
        file = reading.result().file
        if path is None or not isinstance(file, DiskFile):
            return
        if self._in_memory.keep(path, file):
            asyncio.get_running_loop().call_later(self._kept_s, self._in_memory.forget, path)
        else:
            os.close(file.descriptor)

    def _read(self, request: ReadChunk) -> fx.Steps[bytes | None]:
        try:
            data = yield from self._server.read_small(request)
        except PeacefsError:
            return None
        return data if len(data) == request.length else None

    def _read_and_open(self, request: ReadChunk, path: str | None) -> fx.Steps[_Read]:
        data = yield from self._read(request)
        if data is None or path is None:
            return _Read(data)
        with contextlib.suppress(OSError):
            return _Read(data, (yield from fx.open_file(path)))
        return _Read(data)


def _request(wanted: ReadFile, chunks: Sequence[ChunkLayout]) -> ReadChunk | None:
    """Return the range wanted of the only chunk of a small file; None for others, and for empty ranges."""
    if len(chunks) != 1 or chunks[0].length > small_chunk_bytes_max:
        return None
    (chunk,) = chunks
    rest = chunk.length - wanted.offset
    length = rest if wanted.length is None else min(rest, wanted.length)
    return ReadChunk(chunk.token, chunk.chunk, chunk.version, wanted.offset, length) if length > 0 else None
