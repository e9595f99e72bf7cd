"""Reads one version of a file for one open handle: sequentially with read-ahead, or at random offsets."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from peacefs.client.file_objects import FileSource
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import MIB

# After this number of sequential reads, a reader reads ahead while the kernel copies the previous bytes. Up to
# `readers_ahead_max` readers of a mount may do so at once; each uses two buffers.
read_ahead_after_reads: Final = 2
read_ahead_bytes: Final = 1 * MIB
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


class VersionReader:
    """The version of a file at its open. Threads may share it; sequential reads wait for each other."""

    def __init__(self, source: FileSource, ahead: ReadAhead) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._ahead = ahead
        self._next = 0
        self._in_sequence = 0
        self._has_place = False
        self._coming: Future[memoryview] | None = None
        #: Bytes that were read ahead and not requested yet.
        self._piece = memoryview(b"")
        self._spare: list[bytearray] = []

    @property
    def length(self) -> int:
        return self._source.length

    @property
    def chunks(self) -> Sequence[tuple[ChunkId, int]]:
        return self._source.chunks

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` up to the end of the file; return the number of bytes."""
        with self._lock:
            is_next, self._next = offset == self._next, offset + len(target)
            if is_next:
                count = self._read_on(offset, target)
                self._next = offset + count
                return count
            self._in_sequence = 0
            self._stop_ahead()
        return self._source.read_into_at(offset, target)

    def close(self) -> None:
        with self._lock:
            self._stop_ahead()
            self._source.close()

    def _read_on(self, offset: int, target: memoryview) -> int:
        done = 0
        while self._has_place and done < len(target) and (piece := self._next_piece()):
            taken = min(len(piece), len(target) - done)
            target[done : done + taken] = piece[:taken]
            self._piece = piece[taken:]
            done += taken
        if done < len(target) and offset + done < self.length:
            self._stop_ahead()
            if self._source.tell() != offset + done:
                self._source.seek(offset + done)
            done += self._source.readinto(target[done:])
        self._in_sequence += 1
        is_worthwhile = self._in_sequence >= read_ahead_after_reads and offset + done < self.length
        if is_worthwhile and not self._has_place and self._ahead.take_place():
            self._has_place = True
            self._spare = [bytearray(read_ahead_bytes), bytearray(read_ahead_bytes)]
            self._begin()
        return done

    def _next_piece(self) -> memoryview:
        """Return the next bytes, and start reading those after them; empty at the end."""
        if not self._piece and self._coming is not None:
            coming, self._coming = self._coming, None
            try:
                self._piece = coming.result()
            except BaseException:
                self._stop_ahead()
                raise
            if self._piece:
                self._begin()
        return self._piece

    def _begin(self) -> None:
        # Alternate between two buffers. The bytes in the other one were returned last and have been copied by now.
        self._spare.reverse()
        self._coming = self._ahead.threads.submit(self._fill, self._spare[0])

    def _fill(self, room: bytearray) -> memoryview:
        return memoryview(room)[: self._source.readinto(room)]

    def _stop_ahead(self) -> None:
        if not self._has_place:
            return
        coming, self._coming = self._coming, None
        if coming is not None:
            # Wait, because the read uses the source's position. Ignore its error: nobody needs the bytes.
            coming.exception()
        self._piece, self._spare, self._has_place = memoryview(b""), [], False
        self._ahead.give_back_place()


def extends(longer: Sequence[tuple[ChunkId, int]], shorter: Sequence[tuple[ChunkId, int]]) -> bool:
    """Return whether one version begins with another. Versions are lists of chunk ids and lengths."""
    if not shorter:
        return True
    *whole, (last, last_length) = shorter
    at = len(whole)
    return (
        len(longer) > at and list(longer[:at]) == whole and longer[at][0] == last and longer[at][1] >= last_length
    )
