"""The pages of a checkpoint as one sequence of bytes, which is cut into chunks without copying."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from peacefs.client.transfer.chunk_buffer import OutgoingPacket
from peacefs.protocol.checksums import Bytes, block_checksums
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import packet_bytes
from peacefs.runtime import effects as fx

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Pages:
    """Buffers, in order. They must not change during the write."""

    def __init__(
        self, pages: Sequence[Buffer], written: Callable[[int, int], None] = lambda begin, end: None
    ) -> None:
        """`written` is called with two offsets once the bytes between them are on datanodes and unneeded."""
        self.written = written
        self._views = [memoryview(page).cast("B") for page in pages]
        self._ends = list(accumulate(len(view) for view in self._views))
        self.length = self._ends[-1] if self._ends else 0

    @property
    def sizes(self) -> list[int]:
        return [len(view) for view in self._views]

    def bytes_at(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`; copied only if they span pages."""
        found: list[memoryview] = []
        at = bisect_right(self._ends, offset)
        while length > 0:
            view = self._views[at]
            start = offset - (self._ends[at] - len(view))
            piece = view[start : start + length]
            if len(piece):
                found.append(piece)
            offset, length, at = offset + len(piece), length - len(piece), at + 1
        return found[0] if len(found) == 1 else b"".join(found)


class Stop:
    """Tells all writers of a checkpoint that it is given up, and why. The first reason is kept."""

    def __init__(self) -> None:
        self.reason: PeacefsError | None = None

    def set(self, reason: PeacefsError) -> None:
        if self.reason is None:
            self.reason = reason

    def check(self) -> None:
        if self.reason is not None:
            raise self.reason


class PageChunk:
    """The packets of one chunk: `length` bytes of the pages, at least one. See `ResendableSource`."""

    def __init__(self, pages: Pages, offset: int, length: int, stop: Stop) -> None:
        self._pages = pages
        self._offset = offset
        self._length = length
        self._stop = stop

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        """Return a packet of the chunk. Raises the reason why the checkpoint was given up."""
        yield from ()
        self._stop.check()
        offset = index * packet_bytes
        length = min(packet_bytes, self._length - offset)
        data = self._pages.bytes_at(self._offset + offset, length)
        return OutgoingPacket(offset, block_checksums(data), data, offset + length == self._length)

    def failed_at_source(self) -> bool:
        return self._stop.reason is not None
