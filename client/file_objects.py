"""Files of the cluster as Python file objects, for reading, writing and appending.

Readers run `file_reader` on the caller's thread, long reads over the network on threads of the client's too.
A writer keeps what was written since the last flush: if it fits `stream_buffer_bytes`, `hflush` or `close`
sends it on the caller's thread; more is sent while it is written, by a thread that the object owns and that has
ended when `hflush`, `close` or `discard` returns. Writers run a `file_flusher` on a `ThreadDriver`.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from peacefs.client.limits import stream_buffer_bytes
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import MIB, checksum_block_bytes, chunk_bytes_max, packet_bytes, source_silence_s
from peacefs.protocol.messages import Created, Leased, Opened
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

# Ahead is read for who has read so much without a seek.
read_ahead_after_bytes: Final = 1 * MIB
# An open file keeps so many shared descriptors for its next reads.
shared_descriptors_kept_max: Final = 4


T = TypeVar("T")


class _RangeReader(io.RawIOBase):
    """Reads on from the position in ranges that double from a packet to a chunk.

    So a seek throws little away, a long read asks seldom, and a range that was read to its end leaves its
    connection for others. A long read over the network goes on with ranges that `reads` has read ahead.
    """

    def __init__(self, driver: ThreadDriver, opened: Opened, reads: ParallelReads | None) -> None:
        self._driver = driver
        #: The request that logs of services name all of its reads by.
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
        """Raises ChunkUnavailable when no replica gives good bytes."""
        target = memoryview(buffer).cast("B")
        if not self._piece:
            piece = self._next_piece(target)
            if piece.obj is target.obj:
                # It was received where it is wanted.
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
        """The bytes at the position, if they are read ahead."""
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
        # When several threads renew at once, one renewal is remembered and the others are made again.
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
    """A file open for reading, as it was when it was opened. Reads, seeks, iterates over lines."""

    def __init__(self, driver: ThreadDriver, opened: Opened, reads: ParallelReads | None = None) -> None:
        self._ranges = _RangeReader(driver, opened, reads)
        super().__init__(self._ranges, checksum_block_bytes)

    @property
    def length(self) -> int:
        """Return the length of the file in bytes."""
        return self._ranges.length

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on, wherever the position is; any number of threads at once."""
        return self._ranges.read_at(offset, length)

    def read_into_at(self, offset: int, target: Buffer) -> int:
        """Fill `target` from `offset` on as far as the file goes, return how many bytes that are; as `read_at`."""
        return self._ranges.read_into_at(offset, memoryview(target).cast("B"))


class FileSink(io.BufferedIOBase):
    """A file open for writing. What was not flushed cannot be seen until `close`, which publishes it whole.

    A `with` block left by an exception discards what was not flushed, and so does forgetting to close it. `close`
    returns once every byte is on the disks of datanodes, and raises what went wrong; what was not flushed is then
    not there.

    A file that is flushed appears with the first flush. From then on its writer is the only one who may extend
    it, by a lease as when it is appended to; who has lost it is refused. When the writer dies the file ends where
    its last flush ended.
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
        """`extended_from` is the length of a file that its writer has the lease of already; None for a new one."""
        has_lease = extended_from is not None
        self._driver = driver
        #: The request that the file is written by; its span, where it is traced, ends with the file.
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
        """Raises what has gone wrong so far."""
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
        """Promises nothing, as in HDFS: see `hflush`."""

    def hflush(self) -> None:
        """Makes what was written part of the file, on the disks of datanodes, for every reader that opens it now.

        Raises LeaseExpired when somebody else has taken the file over, FileNotFound when it was deleted, and what
        `close` would; nothing more can be written then. A file that is flushed often gets few chunks all the same
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
        """The same: what `hflush` has published is on disks, fsynced by every datanode of the pipeline."""
        self.hflush()

    def close(self) -> None:
        """Publishes the file. Raises what went wrong; further calls do nothing."""
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
        """Gives up what was not flushed; of a file that never was, what was there under its name stays."""
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
        # The inherited one closes, which would publish half a file. A lease is left to expire: nobody waits for
        # calls in here.
        if hasattr(self, "_stream") and not self.closed:
            self._give_up()

    def _end_part(self) -> bytes:
        """Return the unflushed bytes; none when there was more than fits the stream, and it has been sent."""
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
        """Waits while the stream is full; a thread empties it from the first time on."""
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
        # The thread fires it at its end at the latest, and every step of it has a deadline.
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
    """A file that is being extended: its writer has the lease from the start. `tell` counts from its beginning."""

    def __init__(self, driver: ThreadDriver, leased: Leased, holder: str, grant_client: GrantClient) -> None:
        created = Created(leased.token, leased.allocated)
        super().__init__(driver, created, leased.block_bytes, holder, grant_client, extended_from=leased.length)
