"""Small files that lie on this datanode's own disk, for its gateway: read there, not through the data server.

A query that starts again opens hundreds of them one after another, and the coordinator sends each reader to a
datanode that has what it wants. This is a short cut and no other way to read: whatever keeps it from giving the
bytes at once, the gateway reads as any client does, from whichever replica can give them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from peacefs.protocol import effects as fx
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import gateway_own_read_timeout_s, gateway_own_reads_max, small_chunk_bytes_max
from peacefs.protocol.messages import ReadChunk
from peacefs.protocol.threads import ThreadDriver
from peacefs.protocol.webhdfs_redirects import ReadFile

from .chunk_server import ChunkServer


class OwnReads:
    """Belongs to the event loop; `close` it after that has ended.

    Its threads are few and its own: a disk that hangs takes these, and no other of the gateway's.
    """

    def __init__(
        self, server: ChunkServer, driver: ThreadDriver, *, timeout_s: float = gateway_own_read_timeout_s
    ) -> None:
        self._server = server
        self._driver = driver
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(gateway_own_reads_max, thread_name_prefix="gateway-own")
        self._under_way = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, wanted: ReadFile) -> bytes | None:
        """The whole answer, verified; None where it is not to be had here, or not at once."""
        request = _request(wanted)
        if request is None or self._under_way >= gateway_own_reads_max:
            return None
        reading = asyncio.get_running_loop().run_in_executor(self._threads, self._driver.run, self._read(request))
        self._under_way += 1
        reading.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(reading)
        except TimeoutError:
            return None

    def _ended(self, reading: asyncio.Future[bytes | None]) -> None:
        self._under_way -= 1
        if not reading.cancelled():
            reading.exception()  # Known already, unless nobody waits any more.

    def _read(self, request: ReadChunk) -> fx.Steps[bytes | None]:
        try:
            data = yield from self._server.read_small(request)
        except PeacefsError:
            return None
        return data if len(data) == request.length else None


def _request(wanted: ReadFile) -> ReadChunk | None:
    """What is asked of the only chunk of a small file; None for others, and where no byte is wanted."""
    layout = wanted.layout
    if layout is None or len(layout.chunks) != 1 or layout.length > small_chunk_bytes_max:
        return None
    (chunk,) = layout.chunks
    rest = layout.length - wanted.offset
    length = rest if wanted.length is None else min(rest, wanted.length)
    return ReadChunk(chunk.token, chunk.chunk, chunk.version, wanted.offset, length) if length > 0 else None
