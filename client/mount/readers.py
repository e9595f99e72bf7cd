"""Reads one version of a file for one open handle: sequentially with read-ahead, or at random offsets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from peacefs.client.file_objects import FileSource
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import MIB

from .blocks import Block

# After this number of sequential reads, a reader reads ahead, up to `blocks_ahead_max` blocks. A block is as long
# as the kernel's longest request. Up to `readers_ahead_max` readers of a mount may read ahead at once.
read_ahead_after_reads: Final = 2
block_bytes: Final = 1 * MIB
blocks_ahead_max: Final = 3
readers_ahead_max: Final = 32
_THREADS: Final = 4


class ReadAhead:
    """The threads that read ahead for all readers of a mount. Limits the number of such readers. Thread-safe."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="peacefs-ahead")
        self._places = threading.BoundedSemaphore(readers_ahead_max)

    def take_place(self) -> bool:
        return self._places.acquire(blocking=False)

    def give_back_place(self) -> None:
        self._places.release()


class BlocksAhead:
    """Reads a source sequentially, on a thread of `ahead`, into blocks. Used by one thread at a time.

    The source belongs to this object until `stop` returns.
    """

    def __init__(self, source: FileSource, ahead: ReadAhead) -> None:
        """Begin to read. The caller has taken a place of `ahead`, which `stop` gives back."""
        self._source = source
        self._ahead = ahead
        self._changed = threading.Condition()
        self._blocks: deque[Block] = deque()
        self._fault: BaseException | None = None
        self._is_filling = self._is_at_end = self._is_stopped = False
        with self._changed:
            self._go_on()

    def next(self) -> Block | None:
        """Return the next block, and leave it in place; None at the end of the file.

        Raises what reading raises.
        """
        with self._changed:
            while not self._blocks:
                if self._fault is not None:
                    raise self._fault
                if self._is_at_end:
                    return None
                self._changed.wait()
            return self._blocks[0]

    def take(self) -> None:
        """Remove the next block. Go on reading."""
        with self._changed:
            self._blocks.popleft()
            self._go_on()

    def stop(self) -> None:
        """Stop reading, and wait for a read under way, because it uses the source's position."""
        with self._changed:
            self._is_stopped = True
            while self._is_filling:
                self._changed.wait()
            self._blocks.clear()
        self._ahead.give_back_place()

    def _go_on(self) -> None:
        """Start to fill if there is room. Called with the lock."""
        if not (self._is_filling or self._is_done()):
            self._is_filling = True
            self._ahead.threads.submit(self._fill)

    def _is_done(self) -> bool:
        is_over = self._is_stopped or self._is_at_end or self._fault is not None
        return is_over or len(self._blocks) >= blocks_ahead_max

    def _fill(self) -> None:
        while True:
            block, count, failed = None, 0, None
            try:
                block = Block(block_bytes)
                count = self._source.readinto(block.view)
            except BaseException as fault:  # the reader raises it
                failed = fault
            with self._changed:
                self._fault = failed
                if block is not None and count:
                    self._blocks.append(block.cut(count))
                elif failed is None:
                    self._is_at_end = True
                self._is_filling = not self._is_done()
                self._changed.notify_all()
                if not self._is_filling:
                    return


class VersionReader:
    """The version of a file at its open. Threads may share it; sequential reads wait for each other."""

    def __init__(self, source: FileSource, ahead: ReadAhead) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._ahead = ahead
        self._next = 0
        self._in_sequence = 0
        self._is_closed = False
        self._blocks: BlocksAhead | None = None
        #: The number of bytes of the next block that were read already.
        self._taken = 0

    @property
    def length(self) -> int:
        return self._source.length

    @property
    def chunks(self) -> Sequence[tuple[ChunkId, int]]:
        return self._source.chunks

    def take_block(self, offset: int, count: int) -> Block | None:
        """Return the bytes from `offset` without a copy, if a block that was read ahead has exactly those."""
        with self._lock:
            if self._blocks is None or offset != self._next or self._taken:
                return None
            block = self._next_block()
            is_whole = block is not None and block.length <= count
            if block is None or not is_whole or (block.length < count and offset + block.length < self.length):
                return None
            self._blocks.take()
            self._next = offset + block.length
            return block

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` up to the end of the file; return the number of bytes.

        A thread may still read after another one has closed the reader, because it has another version for the
        same handle. The read then keeps nothing open.
        """
        with self._lock:
            is_next, self._next = offset == self._next, offset + len(target)
            if is_next and not self._is_closed:
                count = self._read_on(offset, target)
                self._next = offset + count
                return count
            self._in_sequence = 0
            self._stop_ahead()
        return self._source.read_into_at(offset, target)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._stop_ahead()
            self._source.close()

    def _read_on(self, offset: int, target: memoryview) -> int:
        done = 0
        while self._blocks is not None and done < len(target) and (block := self._next_block()):
            count = min(block.length - self._taken, len(target) - done)
            target[done : done + count] = block.view[self._taken : self._taken + count]
            self._taken, done = self._taken + count, done + count
            if self._taken == block.length:
                self._taken = 0
                self._blocks.take()
        if done < len(target) and offset + done < self.length:
            self._stop_ahead()
            if self._source.tell() != offset + done:
                self._source.seek(offset + done)
            done += self._source.readinto(target[done:])
        self._in_sequence += 1
        is_worthwhile = self._in_sequence >= read_ahead_after_reads and offset + done < self.length
        if is_worthwhile and self._blocks is None and self._ahead.take_place():
            self._blocks = BlocksAhead(self._source, self._ahead)
        return done

    def _next_block(self) -> Block | None:
        assert self._blocks is not None
        try:
            return self._blocks.next()
        except BaseException:
            self._stop_ahead()
            raise

    def _stop_ahead(self) -> None:
        if self._blocks is not None:
            blocks, self._blocks, self._taken = self._blocks, None, 0
            blocks.stop()


def extends(longer: Sequence[tuple[ChunkId, int]], shorter: Sequence[tuple[ChunkId, int]]) -> bool:
    """Return whether one version begins with another. Versions are lists of chunk ids and lengths."""
    if not shorter:
        return True
    *whole, (last, last_length) = shorter
    at = len(whole)
    return (
        len(longer) > at and list(longer[:at]) == whole and longer[at][0] == last and longer[at][1] >= last_length
    )
