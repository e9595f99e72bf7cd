"""Writes one write set of an order, and reports when."""

from __future__ import annotations

import threading
from math import inf

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import write_chunk
from peacefs.client.transfer.write_grants import GrantedSet
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Allocated, WrittenChunk
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

from .orders import WriteOrder


class SetWriter:
    """Writes chunks of one file, several at once, each after its grant."""

    def __init__(self, driver: ThreadDriver, order: WriteOrder, grants: GrantedSet, piece: bytes) -> None:
        self._driver = driver
        self._order = order
        self._grants = grants
        self._piece = piece
        self._lock = threading.Lock()
        self._written: dict[int, WrittenChunk] = {}
        self._error: PeacefsError | None = None
        #: Time of the first grant.
        self.granted_s = inf

    def run(self) -> list[WrittenChunk]:
        threads = [threading.Thread(target=self._keep_writing) for _ in range(self._order.parallel)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return [self._written[number] for number in range(len(self._order.chunks))]

    def _keep_writing(self) -> None:
        try:
            while self._error is None and self._driver.run(self._write_next()):
                pass
        except PeacefsError as error:
            self._error = error

    def _write_next(self) -> fx.Steps[bool]:
        """Write the next granted chunk. Return False if every chunk has a writer."""
        granted = yield from self._grants.next()
        if granted is None:
            return False
        now_s = yield from fx.now()
        with self._lock:
            self.granted_s = min(self.granted_s, now_s)
        index, size = granted.index, self._order.chunks[granted.index]

        def again(failed: list[str], abandoned: int | None) -> fx.Steps[Allocated]:
            given_up = [abandoned] if abandoned is not None else []
            return (yield from self._grants.again(index, size, failed, given_up))

        buffer = ChunkBuffer(_stream(self._piece, size), size)
        self._written[index] = yield from write_chunk(granted.allocated, buffer, again, [])
        self._grants.written(index)
        return True


def _stream(piece: bytes, length: int) -> ByteStream:
    stream = ByteStream()
    for at in range(0, length, len(piece)):
        stream.feed(piece[: length - at])
    stream.finish()
    return stream
