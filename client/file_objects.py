"""Files of the cluster as Python's file objects to read from; they run `file_reader` on the caller's thread."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import checksum_block_bytes, chunk_bytes_max, loans_kept_max, packet_bytes
from peacefs.protocol.messages import Opened
from peacefs.protocol.runtime.thread_driver import ThreadDriver

from .transfer.file_reader import FileReader, read_rest
from .transfer.loans import Loans

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
        self._loans = Loans(loans_kept_max)
        self._avoided: set[NodeId] = set()
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
        while piece := self._piece or self._next_piece():
            pieces.append(bytes(piece))
            self._position += len(piece)
            self._piece = memoryview(b"")
        return b"".join(pieces)

    def _next_piece(self, into: memoryview | None = None) -> memoryview:
        while self._position < self.length:
            if self._reader is None:
                token, layout = self._opened.token, self._opened.layout
                self._reader = FileReader(
                    token, layout, self._position, self._range_bytes, loans=self._loans, avoided=self._avoided
                )
                self._range_bytes = min(self._range_bytes * 2, chunk_bytes_max)
            piece = self._driver.run(self._reader.next_piece(into))
            if piece is not None:
                return piece
            self._opened, self._reader = self._reader.opened, None
        return memoryview(b"")

    def _leave_range(self) -> None:
        self._piece = memoryview(b"")
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self._opened = reader.opened
            self._driver.run(reader.close())

    def close(self) -> None:
        if not self.closed:
            self._leave_range()
            self._driver.run(self._loans.close())
        super().close()

    def read_at(self, offset: int, length: int) -> bytes:
        opened = self._opened
        reader = FileReader(opened.token, opened.layout, offset, length, loans=self._loans)
        data = self._driver.run(read_rest(reader))
        # Of several threads that renew something at once one is remembered: the others' is renewed again.
        self._opened = reader.opened
        return data


class FileSource(io.BufferedReader):
    """A file open for reading, as it was when it was opened. Reads, seeks, iterates over lines."""

    def __init__(self, driver: ThreadDriver, opened: Opened) -> None:
        self._ranges = _RangeReader(driver, opened)
        super().__init__(self._ranges, checksum_block_bytes)

    @property
    def length(self) -> int:
        """How long the file is, in bytes."""
        return self._ranges.length

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on, wherever the position is; any number of threads at once."""
        return self._ranges.read_at(offset, length)
