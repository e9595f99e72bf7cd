"""Cuts a part of a file into ranges that several readers read at once, if possible from different datanodes.

Pure, except for the participant that reads one range.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import ChunkLayout, Layout, Opened
from peacefs.runtime import effects as fx

from .file_reader import FileReader
from .short_circuit import can_be_shared


class ReadRange(NamedTuple):
    """`length` bytes of a chunk from its byte `offset`; their position in the file is `at`."""

    chunk_index: int
    offset: int
    length: int
    at: int


def cut_ranges(layout: Layout, start: int, end: int, range_bytes: int) -> Iterator[ReadRange]:
    """Cut the bytes from `start` to before `end` at chunk ends, and inside chunks every `range_bytes`."""
    begin = 0
    for index, chunk in enumerate(layout.chunks):
        at, last = max(start, begin), min(end, begin + chunk.length)
        while at < last:
            stop = min(begin + (at - begin) // range_bytes * range_bytes + range_bytes, last)
            yield ReadRange(index, at - begin, stop - at, at)
            at = stop
        begin += chunk.length


def turned(chunk: ChunkLayout, turn: int) -> ChunkLayout:
    """Return the chunk with its replicas rotated by `turn` places."""
    first = turn % len(chunk.replicas) if chunk.replicas else 0
    return replace(chunk, replicas=[*chunk.replicas[first:], *chunk.replicas[:first]]) if first else chunk


class RangesToRead:
    """Hands out ranges in the order of the file, and reads them. Thread-safe."""

    def __init__(self, opened: Opened, start: int, end: int, range_bytes: int, avoided: set[NodeId]) -> None:
        """`avoided` are nodes that failed a reader of the file; they are tried last."""
        self._token = opened.token
        self._chunks = list(opened.layout.chunks)
        self._range_bytes = range_bytes
        self._avoided = avoided
        self._lock = threading.Lock()
        self._ranges = cut_ranges(opened.layout, start, end, range_bytes)
        self._is_stopped = False

    def next(self) -> ReadRange | None:
        """Return the next range that no reader has taken."""
        with self._lock:
            return None if self._is_stopped else next(self._ranges, None)

    def stop(self) -> None:
        """Hand out no further ranges."""
        with self._lock:
            self._is_stopped = True

    def read(self, wanted: ReadRange, room: memoryview) -> fx.Steps[None]:
        """Read a range into `room`, which has the range's length. Raises ChunkUnavailable, AccessDenied, ..."""
        chunk = self._chunks[wanted.chunk_index]
        # The ranges of one chunk are on the same datanodes. Each range tries a different one first.
        chunk = turned(chunk, wanted.offset // self._range_bytes)
        layout = Layout(chunk.length, [chunk])
        reader = FileReader(self._token, layout, wanted.offset, wanted.length, avoided=self._avoided)
        while (piece := (yield from reader.next_piece(room))) is not None:
            if piece.obj is not room.obj:
                room[: len(piece)] = piece
            room = room[len(piece) :]
        (known,) = reader.opened.layout.chunks
        if known.token != chunk.token:
            # Keep the renewed token for later ranges. The replicas are again in the coordinator's order.
            self._token, self._chunks[wanted.chunk_index] = reader.opened.token, known


def is_read_locally(layout: Layout, at: int, avoided: set[NodeId]) -> fx.Steps[bool]:
    """Return whether the chunk at byte `at` can be read short-circuit from the replica that is tried first.

    Adds a node that cannot be reached to `avoided`, so that later readers do not wait for it.
    """
    begin = 0
    for chunk in layout.chunks:
        if at < begin + chunk.length:
            return can_be_shared(chunk) and (yield from _is_on_this_host(chunk, avoided))
        begin += chunk.length
    return False


def _is_on_this_host(chunk: ChunkLayout, avoided: set[NodeId]) -> fx.Steps[bool]:
    if not chunk.replicas:
        return False
    hop = min(chunk.replicas, key=lambda hop: hop.node in avoided)
    try:
        connection = yield from fx.connect(hop.address, hop.node)
    except PeacefsError:
        avoided.add(hop.node)
        return False
    is_local = connection.local_address is not None
    yield from fx.release(connection)
    return is_local
