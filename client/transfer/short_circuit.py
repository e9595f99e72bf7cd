"""Short-circuit reads, as in HDFS: a reader on a datanode's host reads replicas from files that it opens for it.

The bytes come from the kernel's memory to where they are wanted, without a way through a socket, and are verified
there like all others. Replicas without a file of their own, and files that cannot be read, are read through the
datanode as from any host: so a disk that fails is met by the one that has to know.
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

#: Why a descriptor cannot be had, whatever else the replica may be good for.
_NO_DESCRIPTOR = (PeerUnreachable, PeerRefused, BadRequest, ProtocolViolation)


class ShortCircuitFailed(Exception):
    """The replica is to be read from its datanode, which may have it whole."""


def can_be_shared(layout: ChunkLayout) -> bool:
    """Return whether a chunk has a file of its own."""
    return layout.length > small_chunk_bytes_max


class ShortCircuitReader:
    """The bytes of a chunk from `offset` on, `length` of them. After a fault it is only good for `abandon`."""

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
        """Verified bytes, at least one. Raises LoanFailed, PeerTimeout for a disk that hangs, ChecksumMismatch."""
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
        """Room for whole blocks from `at` on, where they are wanted if there is enough."""
        if into is not None and (count := self._blocks_within(at, len(into), replica_bytes)):
            return into[:count]
        count = self._blocks_within(at, read_piece_bytes, replica_bytes)
        if len(self._buffer) < count:
            self._buffer = bytearray(count)
        return memoryview(self._buffer)[:count]

    def _blocks_within(self, at: int, room: int, replica_bytes: int) -> int:
        """Return how many bytes of the blocks at `at` fit, without the blocks of which nothing is wanted.

        A block ends where the replica ends, not where the file does: a truncated file shows less of its chunk.
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
        """Raises what the datanode refuses the replica itself for."""
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
            # The datanode tells of a replica that is too short; one of release 0.1.0 gives no length.
            raise ShortCircuitFailed(f"{self._what}: the replica's length is {answer.length}")
        if file is not None:
            yield from fx.close_file(file)
        if isinstance(answer, Failure):
            raise from_wire(answer.code, answer.message, self.node)
        raise ProtocolViolation(f"{self._what}: something else came than its file")

    def finish(self) -> fx.Steps[None]:
        """It has been read, or is wanted no more: the file is kept, or given back."""
        if self._shared is not None:
            shared, self._shared = self._shared, None
            yield from self._descriptors.keep(shared)

    def abandon(self) -> fx.Steps[None]:
        """Gives the file back."""
        if self._shared is not None:
            shared, self._shared = self._shared, None
            yield from give_back([shared])


class SharedDescriptor(NamedTuple):
    """An open file, the checksums of all its blocks, the replica's length, and whose replica it is."""

    chunk: ChunkId
    version: Version
    owner: NodeId
    file: fx.File
    sums: bytes
    length: int


class SharedDescriptors:
    """Those of one open file: the latest few that nobody is reading. Thread-safe.

    A replica that is deleted meanwhile takes room on its disk until its descriptor is closed.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._kept: list[SharedDescriptor] = []

    def take(self, chunk: ChunkId, version: Version, owner: NodeId) -> SharedDescriptor | None:
        """One that is kept; its taker has it for himself."""
        with self._lock:
            for shared in self._kept:
                if (shared.chunk, shared.version, shared.owner) == (chunk, version, owner):
                    self._kept.remove(shared)
                    return shared
        return None

    def keep(self, shared: SharedDescriptor) -> fx.Steps[None]:
        """For the next reader; what there is no room for is given back, the oldest first."""
        with self._lock:
            self._kept.append(shared)
            surplus = self._kept[: len(self._kept) - self._kept_max]
            del self._kept[: len(surplus)]
        yield from give_back(surplus)

    def close(self) -> fx.Steps[None]:
        """Gives all back, and keeps none from now on."""
        with self._lock:
            self._kept_max = 0
            kept, self._kept = self._kept, []
        yield from give_back(kept)


def give_back(descriptors: list[SharedDescriptor]) -> fx.Steps[None]:
    """Closes the files; what goes wrong with that makes no difference any more."""
    for shared in descriptors:
        with contextlib.suppress(OSError):
            yield from fx.close_file(shared.file)
