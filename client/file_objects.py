"""Files of the cluster as Python's file objects: one to read from, one to write to.

Both run participants (`file_reader`, `file_writer`) on a `ThreadDriver`. Reading happens on the caller's thread.
A written file that fits `limits.stream_buffer_bytes` is sent by `close` on the caller's thread as well; a longer
one is sent while it is written, by a thread that the object owns and that has ended when `close` or `discard`
returns.
"""

from __future__ import annotations

import io
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.effects import Steps
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import checksum_block_bytes, chunk_bytes_max, packet_bytes
from peacefs.protocol.messages import Completed, Created, Opened
from peacefs.protocol.threads import ThreadDriver

from .byte_stream import ByteStream
from .file_reader import FileReader
from .file_writer import WriteStats, write_file

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _RangeReader(io.RawIOBase):
    """Reads on from the position in ranges that double from a packet to a chunk.

    So a seek throws little away, a long read asks seldom, and a range that was read to its end leaves its
    connection for others.
    """

    def __init__(self, driver: ThreadDriver, opened: Opened) -> None:
        self._driver = driver
        self._opened = opened
        self._position = 0
        self._range_bytes = packet_bytes
        self._reader: FileReader | None = None
        self._piece: memoryview = memoryview(b"")
        self.length = opened.layout.length

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
        if not self._piece:
            self._piece = memoryview(self._next_piece())
        with memoryview(buffer).cast("B") as target:
            count = min(len(target), len(self._piece))
            target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self._position += count
        return count

    def readall(self) -> bytes:
        pieces = []
        while piece := self._piece or self._next_piece():
            pieces.append(bytes(piece))
            self._position += len(piece)
            self._piece = memoryview(b"")
        return b"".join(pieces)

    def _next_piece(self) -> Bytes:
        while self._position < self.length:
            if self._reader is None:
                self._reader = FileReader(
                    self._opened.token, self._opened.layout, self._position, self._range_bytes
                )
                self._range_bytes = min(self._range_bytes * 2, chunk_bytes_max)
            piece = self._driver.run(self._reader.next_piece())
            if piece is not None:
                return piece
            self._reader = None
        return b""

    def _leave_range(self) -> None:
        self._piece = memoryview(b"")
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self._driver.run(reader.close())

    def close(self) -> None:
        if not self.closed:
            self._leave_range()
        super().close()


class FileSource(io.BufferedReader):
    """A file open for reading, as it was when it was opened. Reads, seeks, iterates over lines."""

    def __init__(self, driver: ThreadDriver, opened: Opened) -> None:
        self._ranges = _RangeReader(driver, opened)
        super().__init__(self._ranges, checksum_block_bytes)

    @property
    def length(self) -> int:
        """How long the file is, in bytes."""
        return self._ranges.length


class FileSink(io.BufferedIOBase):
    """A file open for writing. Nothing of it can be seen until `close`, which publishes it whole.

    A `with` block left by an exception discards it, and so does forgetting to close it. `close` returns once
    every byte is on the disks of datanodes, and raises what went wrong; the file is then not there.
    """

    def __init__(self, driver: ThreadDriver, created: Created, block_bytes: int) -> None:
        self._driver = driver
        self._created = created
        self._block_bytes = block_bytes
        self._gathered = bytearray()
        self._position = 0
        self._thread: threading.Thread | None = None
        self._fault: BaseException | None = None
        self._stream = ByteStream()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Buffer) -> int:
        """Raises what has gone wrong so far."""
        self._check_open()
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
        """Does nothing: there is no half of a file."""

    def close(self) -> None:
        """Publishes the file. Raises what went wrong; further calls do nothing."""
        if self.closed:
            return
        try:
            self._hand_over()
            self._stream.finish()
            if self._thread is None:
                self._send()
            else:
                self._thread.join()
            self._raise_fault()
        except BaseException:
            self.discard()
            raise
        finally:
            super().close()

    def discard(self) -> None:
        """Gives the file up; what was there under its name stays."""
        if self.closed:
            return
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
        # The inherited one closes, which would publish half a file.
        if hasattr(self, "_stream"):
            self.discard()

    def _hand_over(self) -> None:
        """What was gathered from small writes."""
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
            self._thread = threading.Thread(target=self._send, name="peacefs-writer", daemon=True)
            self._thread.start()
        has_room = threading.Event()
        room.when_fired(has_room.set)
        # The thread fires it at its end at the latest, and every step of it has a deadline.
        has_room.wait()

    def _steps(self) -> Steps[tuple[Completed, WriteStats]]:
        """What takes the bytes from the stream and publishes them."""
        return write_file(
            self._created.token, self._created.allocated, self._stream, block_bytes=self._block_bytes
        )

    def _send(self) -> None:
        try:
            self._driver.run(self._steps())
        except BaseException as fault:
            self._fault = fault
            self._stream.abort(PeacefsError(f"the writer failed: {fault}"))

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
