"""Short-circuit reads, as in HDFS: a reader on a datanode's host gets the replica's open file from it.

The bytes come from the page cache without a socket, and are verified like all others. Small replicas share a file;
they are read through the datanode. So are unreadable files, so that the datanode notices its failing disk.
"""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from peacefs.client.limits import read_piece_bytes
from peacefs.protocol.checksums import sums_between, verify_blocks
from peacefs.protocol.errors import (
    BadRequest,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    ProtocolViolation,
    from_wire,
)
from peacefs.protocol.ids import ChunkId, NodeId, Version, show
from peacefs.protocol.limits import checksum_block_bytes, small_chunk_bytes_max
from peacefs.protocol.messages import ChunkLayout, DescriptorShared, Failure, Hop, RequestDescriptor
from peacefs.runtime import effects as fx

#: Errors that only mean that no descriptor is available; the replica may still be readable.
_NO_DESCRIPTOR = (PeerUnreachable, PeerRefused, BadRequest, ProtocolViolation)


class ShortCircuitFailed(Exception):
    """The replica must be read through its datanode, which may have all of it."""


def can_be_shared(layout: ChunkLayout) -> bool:
    """Return whether the chunk has a file of its own."""
    return layout.length > small_chunk_bytes_max


class ShortCircuitReader:
    """Reads `length` bytes of a chunk from `offset`, for `ChunkReader`. After a fault only `abandon` follows."""

    def __init__(
        self,
        layout: ChunkLayout,
        hop: Hop,
        offset: int,
        length: int,
        descriptors: SharedDescriptors,
        *,
        timeout_s: float,
    ) -> None:
        self.hop = hop
        self.node = hop.node
        self.gave_something = False
        self._layout = layout
        self._what = f"chunk {show(layout.chunk)} from {hop.node}"
        self._position = offset
        self._end = offset + length
        self._timeout_s = timeout_s
        self._descriptors = descriptors
        self._shared: SharedDescriptor | None = None
        self._buffer = bytearray()

    def next_piece(self, into: memoryview | None) -> fx.Steps[memoryview]:
        """Return verified bytes, at least one. Raises ShortCircuitFailed, ChecksumMismatch, PeerTimeout."""
        shared = self._shared = self._shared or (yield from self._opened())
        skipped = self._position % checksum_block_bytes
        at = self._position - skipped
        target = self._room_for(at, None if skipped else into, shared.length)
        yield from self._fill(shared.file, at, target)
        self._verify(at, target, shared.sums)
        piece = target[skipped : min(len(target), self._end - at)]
        self._position += len(piece)
        self.gave_something = True
        return piece

    def _room_for(self, at: int, into: memoryview | None, replica_bytes: int) -> memoryview:
        """Return a buffer for whole blocks from `at`: a part of `into` if they fit."""
        if into is not None and (count := self._blocks_within(at, len(into), replica_bytes)):
            return into[:count]
        count = self._blocks_within(at, read_piece_bytes, replica_bytes)
        if len(self._buffer) < count:
            self._buffer = bytearray(count)
        return memoryview(self._buffer)[:count]

    def _blocks_within(self, at: int, room: int, replica_bytes: int) -> int:
        """Return the length of the blocks at `at` that fit in `room`, without blocks beyond the requested range.

        The last block ends with the replica. A truncated file may end earlier, inside its last chunk.
        """
        wanted_to = min(-(-self._end // checksum_block_bytes) * checksum_block_bytes, replica_bytes)
        end = min(at + min(room, read_piece_bytes), wanted_to)
        return end - at if end == wanted_to else (end - at) // checksum_block_bytes * checksum_block_bytes

    def _fill(self, file: fx.File, at: int, target: memoryview) -> fx.Steps[None]:
        try:
            given = yield from fx.read_into(file, at, target, timeout_s=self._timeout_s)
        except PeerTimeout as fault:
            raise PeerTimeout(f"{self._what}: {fault.message}", culprit=self.node) from None
        except OSError as error:
            raise ShortCircuitFailed(f"{self._what}: {error.strerror or error}") from None
        if given < len(target):
            raise ShortCircuitFailed(f"{self._what}: its file has become shorter")

    def _verify(self, at: int, data: memoryview, sums: bytes) -> None:
        verify_blocks(data, sums_between(sums, at, at + len(data)), self._what)

    def _opened(self) -> fx.Steps[SharedDescriptor]:
        """Get the open file. Raises the datanode's error if it refuses the replica itself."""
        kept = self._descriptors.take(self._layout.chunk, self._layout.version, self.node)
        if kept is not None:
            return kept
        connection = yield from fx.connect(self.hop.address, self.node)
        address = connection.local_address
        yield from fx.release(connection)
        if address is None:
            raise ShortCircuitFailed(f"{self.node} shares no descriptors")
        try:
            return (yield from self._request_at(address))
        except _NO_DESCRIPTOR as fault:
            raise ShortCircuitFailed(f"{self._what}: {fault.message}") from None

    def _request_at(self, address: fx.Address) -> fx.Steps[SharedDescriptor]:
        layout = self._layout
        owner = yield from fx.connect(address, self.node)
        try:
            request = RequestDescriptor(layout.token, layout.chunk, layout.version)
            yield from fx.send(owner, request, timeout_s=self._timeout_s)
            answer, file = yield from fx.receive_descriptor(owner, timeout_s=self._timeout_s)
        except Exception:
            yield from fx.close(owner)
            raise
        yield from fx.release(owner)
        if isinstance(answer, DescriptorShared) and file is not None:
            if answer.length is not None and answer.length >= layout.length:
                return SharedDescriptor(layout.chunk, layout.version, self.node, file, answer.sums, answer.length)
            yield from fx.close_file(file)
            # A replica that is too short is reported by its datanode. Release 0.1.0 sends no length.
            raise ShortCircuitFailed(f"{self._what}: the replica's length is {answer.length}")
        if file is not None:
            yield from fx.close_file(file)
        if isinstance(answer, Failure):
            raise from_wire(answer.code, answer.message, self.node)
        raise ProtocolViolation(f"{self._what}: something else came than its file")

    def finish(self) -> fx.Steps[None]:
        """Keep the file for other reads, after the range was read or is no longer needed."""
        if self._shared is not None:
            shared, self._shared = self._shared, None
            yield from self._descriptors.keep(shared)

    def abandon(self) -> fx.Steps[None]:
        """Close the file."""
        if self._shared is not None:
            shared, self._shared = self._shared, None
            yield from give_back([shared])


class SharedDescriptor(NamedTuple):
    """An open file, the checksums of all its blocks, and the replica that it belongs to."""

    chunk: ChunkId
    version: Version
    owner: NodeId
    file: fx.File
    sums: bytes
    length: int


class SharedDescriptors:
    """The most recently used descriptors of one open file that no reader is using. Thread-safe.

    A deleted replica keeps its disk space until its descriptor is closed.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._kept: list[SharedDescriptor] = []

    def take(self, chunk: ChunkId, version: Version, owner: NodeId) -> SharedDescriptor | None:
        """Remove and return a kept descriptor, for one reader; None if there is none."""
        with self._lock:
            for shared in self._kept:
                if (shared.chunk, shared.version, shared.owner) == (chunk, version, owner):
                    self._kept.remove(shared)
                    return shared
        return None

    def keep(self, shared: SharedDescriptor) -> fx.Steps[None]:
        """Keep a descriptor for the next reader. Beyond the maximum, the oldest are closed."""
        with self._lock:
            self._kept.append(shared)
            surplus = self._kept[: len(self._kept) - self._kept_max]
            del self._kept[: len(surplus)]
        yield from give_back(surplus)

    def close(self) -> fx.Steps[None]:
        """Close all descriptors, and keep none from now on."""
        with self._lock:
            self._kept_max = 0
            kept, self._kept = self._kept, []
        yield from give_back(kept)


def give_back(descriptors: list[SharedDescriptor]) -> fx.Steps[None]:
    """Close the files. Errors no longer matter."""
    for shared in descriptors:
        with contextlib.suppress(OSError):
            yield from fx.close_file(shared.file)
