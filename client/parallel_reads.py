"""Large reads over the network by several threads: parts of one result, and ranges ahead of who reads on.

One stream brings what one datanode, its disk and its link give; several bring what several do. What lies on this
host is read short-circuit by one thread, and so is what a single datanode has: there threads would only cost.
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

# Our client splits a read over the network of so much or more, if several datanodes have the chunks, into ranges
# of this size, so many of one file at once. A sequential reader has as many ranges read ahead. One client has so
# many threads for both, and keeps so much that was read ahead; a file opened beyond that is read without.
parallel_read_bytes_min: Final = 8 * MIB
parallel_range_bytes: Final = 4 * MIB
parallel_ranges_max: Final = 4
parallel_read_threads: Final = 8
read_ahead_bytes_max: Final = 64 * MIB


class ParallelReads:
    """The threads of one client, and the bound on what is read ahead by all of them. Thread-safe."""

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
        """Return how much more may be read ahead."""
        return self._free_bytes

    def close(self) -> None:
        """Waits for nobody; what is under way ends with the connections."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def are_worthwhile(self, opened: Opened, start: int, end: int, avoided: set[NodeId]) -> bool:
        """Return whether several threads bring these bytes sooner than one."""
        layout = opened.layout
        if end - start < self._read_bytes_min or self._is_closed:
            return False
        nodes = {hop.node for chunk in layout.chunks for hop in chunk.replicas}
        return len(nodes) > 1 and not self.driver.run(is_read_locally(layout, start, avoided))

    def read(self, opened: Opened, start: int, end: int, avoided: set[NodeId]) -> bytes:
        """Read these bytes of a file on the caller's thread and others. Raises ChunkUnavailable, ..."""
        ranges = RangesToRead(opened, start, end, self._range_bytes, avoided)
        # Received where it is to stay: `getvalue` hands out the buffer's own bytes, without a copy.
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
                # One that has not begun is not needed any more; the others write into the buffer.
                begun = [helper for helper in helpers if not helper.cancel()]
                wait(begun)
            for helper in begun:
                helper.result()
        return buffer.getvalue()

    def begin_ahead(self, opened: Opened, position: int, avoided: set[NodeId]) -> RangesAhead | None:
        """Begin to read ahead from a position; None where that is of no use, or too much is read ahead already."""
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
        """Have something done by one of the threads; by none once the client is closed."""
        with self._lock:
            if self._is_closed:
                ended: Future[None] = Future()
                ended.cancel()
                return ended
            if self._threads is None:
                self._threads = ThreadPoolExecutor(parallel_read_threads, thread_name_prefix="peacefs-reads")
            return self._threads.submit(copy_context().run, work)

    def give_back(self, count: int) -> None:
        """Room that nothing is read into any more."""
        with self._lock:
            self._free_bytes += count


class RangesAhead:
    """The ranges that follow a reader's position, some of them under way. Belongs to one reader."""

    def __init__(self, reads: ParallelReads, ranges: RangesToRead, range_bytes: int) -> None:
        self._reads = reads
        self._ranges = ranges
        self._range_bytes = range_bytes
        #: Used again and again: new memory is slow to come by.
        self._spare = [bytearray(range_bytes) for _ in range(parallel_ranges_max)]
        self._under_way: deque[tuple[ReadRange, bytearray, Future[None]]] = deque()
        self._shown: bytearray | None = None

    def next_piece(self) -> memoryview | None:
        """The next range, valid until the next call; None at the end. Raises what kept it from being read."""
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
        """Ends what has not begun; the room of what is under way is given back when that ends."""
        self._ranges.stop()
        idle = len(self._spare) + (self._shown is not None)
        self._spare, self._shown = [], None
        self._reads.give_back(idle * self._range_bytes)
        while self._under_way:
            _, _, reading = self._under_way.popleft()
            reading.cancel()
            reading.add_done_callback(lambda _: self._reads.give_back(self._range_bytes))
