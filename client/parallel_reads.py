"""Large reads over the network by several threads: parts of one result, or ranges read ahead.

One stream is as fast as one datanode, its disk and its link; several streams add up the speed of several
datanodes. Replicas on this host are read short-circuit by one thread. If a single datanode has all chunks, one
thread reads them too, because more threads would not be faster.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import Final

from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Opened
from peacefs.runtime.thread_driver import ThreadDriver

from .transfer.read_ranges import RangesToRead, ReadRange, is_read_locally

# A network read of at least `parallel_read_bytes_min`, from at least two datanodes, is split into ranges of
# `parallel_range_bytes`. Up to `parallel_ranges_max` ranges of one file are read at once, or read ahead of a
# sequential reader. All reads of a client share its threads and its read-ahead memory; a file opened when that
# memory is used up is read without reading ahead.
parallel_read_bytes_min: Final = 8 * MIB
parallel_range_bytes: Final = 4 * MIB
parallel_ranges_max: Final = 4
parallel_read_threads: Final = 8
read_ahead_bytes_max: Final = 64 * MIB


class ParallelReads:
    """The read threads of one client, and its limit on memory for reading ahead. Thread-safe."""

    def __init__(
        self,
        driver: ThreadDriver,
        *,
        range_bytes: int = parallel_range_bytes,
        read_bytes_min: int = parallel_read_bytes_min,
        ahead_bytes_max: int = read_ahead_bytes_max,
    ) -> None:
        self.driver = driver
        self._range_bytes = range_bytes
        self._read_bytes_min = read_bytes_min
        self._lock = threading.Lock()
        self._free_bytes = ahead_bytes_max
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    @property
    def ahead_bytes_free(self) -> int:
        """The number of bytes that may still be read ahead."""
        return self._free_bytes

    def close(self) -> None:
        """Close without waiting. Reads under way end when the connections are closed."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def are_worthwhile(self, opened: Opened, start: int, end: int, avoided: set[NodeId]) -> bool:
        """Return whether several threads would read these bytes faster than one."""
        layout = opened.layout
        if end - start < self._read_bytes_min or self._is_closed:
            return False
        nodes = {hop.node for chunk in layout.chunks for hop in chunk.replicas}
        return len(nodes) > 1 and not self.driver.run(is_read_locally(layout, start, avoided))

    def read(self, opened: Opened, start: int, end: int, avoided: set[NodeId]) -> bytes:
        """Read these bytes of a file on the caller's thread and on others. Raises ChunkUnavailable, ..."""
        ranges = RangesToRead(opened, start, end, self._range_bytes, avoided)
        # Receive into the final buffer: `getvalue` returns the buffer's own bytes without a copy.
        buffer = io.BytesIO()
        buffer.seek(end - start - 1)
        buffer.write(b"\0")
        with buffer.getbuffer() as room:

            def work() -> None:
                try:
                    while (wanted := ranges.next()) is not None:
                        begin = wanted.at - start
                        self.driver.run(ranges.read(wanted, room[begin : begin + wanted.length]))
                except BaseException:
                    ranges.stop()
                    raise

            helpers = [self.submit(work) for _ in range(parallel_ranges_max - 1)]
            try:
                work()
            finally:
                ranges.stop()
                # Helpers that have not started are cancelled. Wait for the others, since they write into the
                # buffer.
                begun = [helper for helper in helpers if not helper.cancel()]
                wait(begun)
            for helper in begun:
                helper.result()
        return buffer.getvalue()

    def begin_ahead(self, opened: Opened, position: int, avoided: set[NodeId]) -> RangesAhead | None:
        """Start reading ahead from a position. Return None if it would not help or its memory is used up."""
        end = opened.layout.length
        if not self.are_worthwhile(opened, position, end, avoided):
            return None
        needed = parallel_ranges_max * self._range_bytes
        with self._lock:
            if needed > self._free_bytes:
                return None
            self._free_bytes -= needed
        ranges = RangesToRead(opened, position, end, self._range_bytes, avoided)
        return RangesAhead(self, ranges, self._range_bytes)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run `work` on one of the threads. After `close`, return a cancelled future instead."""
        with self._lock:
            if self._is_closed:
                ended: Future[None] = Future()
                ended.cancel()
                return ended
            if self._threads is None:
                self._threads = ThreadPoolExecutor(parallel_read_threads, thread_name_prefix="peacefs-reads")
            return self._threads.submit(copy_context().run, work)

    def give_back(self, count: int) -> None:
        """Return memory for reading ahead that is unused again."""
        with self._lock:
            self._free_bytes += count


class RangesAhead:
    """The ranges that follow a reader's position, some of them being read. Belongs to one reader."""

    def __init__(self, reads: ParallelReads, ranges: RangesToRead, range_bytes: int) -> None:
        self._reads = reads
        self._ranges = ranges
        self._range_bytes = range_bytes
        #: The buffers are reused, because allocating new memory is slow.
        self._spare = [bytearray(range_bytes) for _ in range(parallel_ranges_max)]
        self._under_way: deque[tuple[ReadRange, bytearray, Future[None]]] = deque()
        self._shown: bytearray | None = None

    def next_piece(self) -> memoryview | None:
        """Return the next range, valid until the next call; None at the end. Raises the error of its read."""
        if self._shown is not None:
            self._spare.append(self._shown)
            self._shown = None
        self._begin()
        if not self._under_way:
            return None
        wanted, room, reading = self._under_way.popleft()
        self._shown = room
        try:
            reading.result()
        except CancelledError:
            raise PeerUnreachable("the client was closed while it read ahead") from None
        return memoryview(room)[: wanted.length].toreadonly()

    def _begin(self) -> None:
        while self._spare and (wanted := self._ranges.next()) is not None:
            room = self._spare.pop()
            target = memoryview(room)[: wanted.length]
            reading = self._reads.submit(partial(self._read, wanted, target))
            self._under_way.append((wanted, room, reading))

    def _read(self, wanted: ReadRange, target: memoryview) -> None:
        self._reads.driver.run(self._ranges.read(wanted, target))

    def close(self) -> None:
        """Stop reading ahead. The memory of a read that is under way is returned when it ends."""
        self._ranges.stop()
        idle = len(self._spare) + (self._shown is not None)
        self._spare, self._shown = [], None
        self._reads.give_back(idle * self._range_bytes)
        while self._under_way:
            _, _, reading = self._under_way.popleft()
            reading.cancel()
            reading.add_done_callback(lambda _: self._reads.give_back(self._range_bytes))
