"""Files of the cluster as Python file objects, for reading, writing and appending.

Readers run `file_reader` on the caller's thread; long reads over the network also use the client's threads.

Writers run a `file_flusher` on a `ThreadDriver`. Up to `stream_buffer_bytes` are kept until `hflush` or `close`
sends them on the caller's thread. Once more has been written, the object starts a thread that sends it; this
thread has ended when `hflush`, `close` or `discard` returns.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from peacefs.client.limits import stream_buffer_bytes
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import MIB, checksum_block_bytes, chunk_bytes_max, packet_bytes, source_silence_s
from peacefs.protocol.messages import Created, Layout, Leased, Opened
from peacefs.protocol.trace_context import TraceContext, current_or_new, serving
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.worker_thread import WorkerThread

from .parallel_reads import ParallelReads, RangesAhead
from .transfer.byte_stream import ByteStream
from .transfer.file_flusher import FileFlusher
from .transfer.file_reader import FileReader, read_rest, read_rest_into
from .transfer.short_circuit import SharedDescriptors
from .transfer.write_grants import GrantClient

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Number of bytes that a reader must read without a seek before the client reads ahead.
read_ahead_after_bytes: Final = 1 * MIB
# Maximum number of shared descriptors that an open file keeps for its next reads.
shared_descriptors_kept_max: Final = 4


T = TypeVar("T")


class _RangeReader(io.RawIOBase):
    """The unbuffered file below `FileSource`: reads one opened version of a file, range after range.

    The ranges double from a packet to a chunk. So a seek discards little, a long read sends few requests, and a
    range read to its end frees its connection. In a long read over the network, `reads` reads ahead.
    """

    def __init__(self, driver: ThreadDriver, opened: Opened, reads: ParallelReads | None) -> None:
        self._driver = driver
        #: The request id that the services log for all reads of this file.
        self._trace = current_or_new()
        self._opened = opened
        self._reads = reads
        self._ahead: RangesAhead | None = None
        self._position = 0
        self._range_bytes = packet_bytes
        self._reader: FileReader | None = None
        self._piece: memoryview = memoryview(b"")
        self._descriptors = SharedDescriptors(shared_descriptors_kept_max)
        self._avoided: set[NodeId] = set()
        self.length = opened.layout.length

    def _run(self, steps: fx.Steps[T]) -> T:
        with serving(self._trace):
            return self._driver.run(steps)

    @property
    def layout(self) -> Layout:
        return self._opened.layout

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.length}[whence]
        target = base + offset
        if target < 0:
            raise ValueError(f"seek to {target}, before the beginning")
        if target != self._position:
            self._leave_range()
            self._range_bytes = packet_bytes
            self._position = target
        return target

    def readinto(self, buffer: Buffer) -> int:
        """Read up to the size of the buffer; return the number of bytes. Raises ChunkUnavailable."""
        target = memoryview(buffer).cast("B")
        if not self._piece:
            piece = self._next_piece(target)
            if piece.obj is target.obj:
                # The bytes were received directly into the caller's buffer.
                self._position += len(piece)
                return len(piece)
            self._piece = piece
        count = min(len(target), len(self._piece))
        target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self._position += count
        return count

    def readall(self) -> bytes:
        pieces = []
        if not self._is_under_way:
            rest = self.read_at(self._position, self.length - self._position)
            self._position += len(rest)
            return rest
        while piece := self._piece or self._next_piece():
            pieces.append(bytes(piece))
            self._position += len(piece)
            self._piece = memoryview(b"")
        return b"".join(pieces)

    @property
    def _is_under_way(self) -> bool:
        return bool(self._piece) or self._reader is not None or self._ahead is not None

    def _next_piece(self, into: memoryview | None = None) -> memoryview:
        while self._position < self.length:
            if self._reader is None and (piece := self._next_ahead()) is not None:
                return piece
            if self._reader is None:
                token, layout = self._opened.token, self._opened.layout
                self._reader = FileReader(
                    token,
                    layout,
                    self._position,
                    self._range_bytes,
                    descriptors=self._descriptors,
                    avoided=self._avoided,
                )
                self._range_bytes = min(self._range_bytes * 2, chunk_bytes_max)
            piece = self._run(self._reader.next_piece(into))
            if piece is not None:
                return piece
            self._opened, self._reader = self._reader.opened, None
        return memoryview(b"")

    def _next_ahead(self) -> memoryview | None:
        """Return the bytes at the position if they were read ahead."""
        if self._ahead is None and self._reads is not None and self._range_bytes > read_ahead_after_bytes:
            with serving(self._trace):
                self._ahead = self._reads.begin_ahead(self._opened, self._position, self._avoided)
        if self._ahead is None:
            return None
        try:
            return self._ahead.next_piece()
        except BaseException:
            self._leave_ahead()
            raise

    def _leave_ahead(self) -> None:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.close()

    def _leave_range(self) -> None:
        self._piece = memoryview(b"")
        self._leave_ahead()
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self._opened = reader.opened
            self._run(reader.close())

    def close(self) -> None:
        if not self.closed:
            self._leave_range()
            self._run(self._descriptors.close())
        super().close()

    def read_at(self, offset: int, length: int) -> bytes:
        opened = self._opened
        end = min(offset + length, self.length)
        if self._reads is not None and self._reads.are_worthwhile(opened, offset, end, self._avoided):
            with serving(self._trace):
                return self._reads.read(opened, offset, end, self._avoided)
        reader = FileReader(
            opened.token,
            opened.layout,
            offset,
            length,
            descriptors=self._descriptors,
            avoided=self._avoided,
        )
        data = self._run(read_rest(reader))
        # If several threads renew the token at once, only one renewed token is kept. The others are renewed again.
        self._opened = reader.opened
        return data

    def read_into_at(self, offset: int, target: memoryview) -> int:
        opened = self._opened
        reader = FileReader(
            opened.token,
            opened.layout,
            offset,
            len(target),
            descriptors=self._descriptors,
            avoided=self._avoided,
        )
        count = self._run(read_rest_into(reader, target))
        self._opened = reader.opened
        return count


class FileSource(io.BufferedReader):
    """A file open for reading. It keeps the version that it was opened with, can seek, and iterates over lines."""

    def __init__(self, driver: ThreadDriver, opened: Opened, reads: ParallelReads | None = None) -> None:
        self._ranges = _RangeReader(driver, opened, reads)
        super().__init__(self._ranges, checksum_block_bytes)

    @property
    def length(self) -> int:
        """Return the length of the file in bytes."""
        return self._ranges.length

    @property
    def chunks(self) -> list[tuple[ChunkId, int]]:
        """The ids of the file's chunks, and how many bytes of each belong to the file."""
        return [(chunk.chunk, chunk.length) for chunk in self._ranges.layout.chunks]

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`, whatever the position. Threads may call this concurrently."""
        return self._ranges.read_at(offset, length)

    def read_into_at(self, offset: int, target: Buffer) -> int:
        """Fill `target` from `offset` up to the end of the file; return the number of bytes. See `read_at`."""
        return self._ranges.read_into_at(offset, memoryview(target).cast("B"))


class FileSink(io.BufferedIOBase):
    """A file open for writing. `open_for_writing` makes it; `close` publishes everything that was not flushed.

    A `with` block that ends with an exception discards what was not flushed. So does forgetting to close. `close`
    returns once every byte is on the datanodes' disks. If it raises, the bytes that were not flushed are lost.

    The first flush publishes the file and takes its lease, as for an append: only this writer may extend the file,
    and it is refused once it has lost the lease. If the writer dies, the file ends at its last flush.
    """

    def __init__(
        self,
        driver: ThreadDriver,
        created: Created,
        block_bytes: int,
        holder: str,
        grant_client: GrantClient,
        *,
        extended_from: int | None = None,
    ) -> None:
        """`extended_from` is the length of an existing file whose lease the writer holds; None for a new file."""
        has_lease = extended_from is not None
        self._driver = driver
        #: The request id of the write. If the request is traced, its span ends with the file.
        self._trace = current_or_new()
        self._flusher = FileFlusher(
            created.token, created.allocated, block_bytes, holder, grant_client, has_lease=has_lease
        )
        self._gathered = bytearray()
        self._position = self._flushed_position = extended_from or 0
        self._thread: WorkerThread | None = None
        self._fault: BaseException | None = None
        self._stream = ByteStream()

    def _run(self, steps: fx.Steps[T]) -> T:
        with serving(self._trace):
            return self._driver.run(steps)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Buffer) -> int:
        """Add bytes to the end. Raises any error of earlier writes."""
        self._check_open()
        self._raise_fault()
        if isinstance(data, bytes) and len(data) >= packet_bytes:
            self._hand_over()
            self._feed(data)
            size = len(data)
        else:
            with memoryview(data).cast("B") as view:
                size = len(view)
                self._gathered += view
            if len(self._gathered) >= packet_bytes:
                self._hand_over()
        self._position += size
        return size

    def flush(self) -> None:
        """Do nothing: as in HDFS, only `hflush` publishes what was written."""

    def hflush(self) -> None:
        """Write everything to the datanodes' disks and publish it: readers that open the file now see it.

        Raises LeaseExpired if another writer took the file, FileNotFound if it was deleted, and what `close`
        raises; after an error nothing more can be written. Frequent flushes still make few chunks
        (`transfer.file_flusher.FlushedTail`), up to `file_chunks_max`.
        """
        self._check_open()
        self._raise_fault()
        if self._flusher.has_lease and self._flushed_position == self._position:
            return
        try:
            self._run(self._flusher.flush(self._end_part()))
        except BaseException as fault:
            self._fault = self._fault or fault
            raise
        self._flushed_position = self._position
        self._thread, self._stream = None, ByteStream()

    def hsync(self) -> None:
        """Do the same as `hflush`, which already waits until every datanode of the pipeline has called fsync."""
        self.hflush()

    def close(self) -> None:
        """Publish the file. Raises any error of the write. Further calls do nothing."""
        if self.closed:
            return
        try:
            self._raise_fault()
            self._run(self._flusher.complete(self._end_part()))
        except BaseException:
            self.discard()
            raise
        finally:
            super().close()
            self._end_span()

    def discard(self) -> None:
        """Discard what was not flushed. If nothing was flushed, an older file of the same name remains."""
        if self.closed:
            return
        self._give_up()
        self._run(self._flusher.abandon())
        self._end_span("discarded")

    def _end_span(self, error: str = "") -> None:
        recording, self._trace = self._trace.recording, TraceContext(self._trace.id)
        if recording is not None:
            recording.end(error)

    def _give_up(self) -> None:
        self._stream.abort(PeacefsError("the writer discarded the file"))
        if self._thread is not None:
            self._thread.join()
        self._gathered.clear()
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __del__(self) -> None:
        # The inherited `__del__` would call `close` and publish half a file. A lease is left to expire, because a
        # finalizer should not wait for calls.
        if hasattr(self, "_stream") and not self.closed:
            self._give_up()

    def _end_part(self) -> bytes:
        """Return the bytes that were not flushed; empty if a thread sent them because they exceeded the stream."""
        self._hand_over()
        if self._thread is not None:
            self._stream.finish()
            self._thread.join()
            self._raise_fault()
            return b""
        return b"".join(iter(self._take, b""))

    def _take(self) -> memoryview:
        return self._stream.take(stream_buffer_bytes)

    def _hand_over(self) -> None:
        """Hand over the bytes gathered from small writes."""
        if self._gathered:
            gathered, self._gathered = bytes(self._gathered), bytearray()
            self._feed(gathered)

    def _feed(self, data: bytes) -> None:
        """Put bytes into the stream, and wait while it is full. The first time it is full, start the thread."""
        try:
            room = self._stream.feed(data)
        except PeacefsError:
            self._raise_fault()
            raise
        if room is None:
            return
        if self._thread is None:
            self._thread = WorkerThread(self._send, "peacefs-writer")
            self._thread.start()
        # The thread fires the ticket when it ends, at the latest; each of its steps has a deadline.
        while not self._driver.perform(fx.Wait(room, source_silence_s)):
            pass

    def _send(self) -> None:
        try:
            self._run(self._flusher.write(self._stream))
        except BaseException as fault:
            self._fault = fault
            self._stream.abort(PeacefsError(f"the writer failed: {fault}"))

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")


class AppendingSink(FileSink):
    """A file opened for appending. Its writer holds the lease from the start. `tell` includes existing bytes."""

    def __init__(self, driver: ThreadDriver, leased: Leased, holder: str, grant_client: GrantClient) -> None:
        created = Created(leased.token, leased.allocated)
        super().__init__(driver, created, leased.block_bytes, holder, grant_client, extended_from=leased.length)
