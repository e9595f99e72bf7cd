"""Reads a range of one chunk from any replica that can provide it.

Bytes are returned only after their checksum was verified here. When a replica fails in the middle of the stream,
the next replica continues at the first missing byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from peacefs.client.limits import read_piece_bytes
from peacefs.protocol.checksums import Bytes, split_sums, verify_blocks
from peacefs.protocol.errors import (
    AccessDenied,
    ChecksumMismatch,
    ChunkUnavailable,
    PathError,
    PeacefsError,
    PeerUnreachable,
    ProtocolViolation,
    TokenExpired,
    from_wire,
)
from peacefs.protocol.ids import NodeId, show
from peacefs.protocol.limits import checksum_block_bytes, packet_bytes
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import ChunkLayout, Done, Failure, Hop, Packet, ReadChunk, ReportCorrupt
from peacefs.runtime import effects as fx

from .short_circuit import SharedDescriptors, ShortCircuitFailed, ShortCircuitReader, can_be_shared

# Time limit for reporting a corrupt replica. The reader has moved on to another replica, and must not be delayed.
corrupt_report_timeout_s: Final = 2.0
read_rounds_max: Final = 2


#: Asks the coordinator where the replicas of a chunk are now. Takes the layout known so far and returns the
#: current one, with a new token.
Relocate = Callable[[ChunkLayout], fx.Steps[ChunkLayout]]


class ChunkReader:
    """Reads `length` bytes of a chunk from `offset`, piece by piece, for `FileReader` in one participant.

    Readers of one file share `descriptors` and `avoided`, the nodes that failed any of them. Those are tried last.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        offset: int,
        length: int,
        relocate: Relocate,
        avoided: set[NodeId],
        descriptors: SharedDescriptors,
        *,
        hop_timeout_s: float = default_hop_timeout_s,
    ) -> None:
        assert 0 <= offset < offset + length <= layout.length
        self._layout = layout
        self._position = offset
        self._end = offset + length
        self._relocate = relocate
        self._avoided = avoided
        self._descriptors = descriptors
        self._hop_timeout_s = hop_timeout_s
        self._rounds = 0
        self._candidates: list[Hop] = []
        #: The first fault of each node, which is the most informative one.
        self._faults: dict[NodeId, PeacefsError] = {}
        self._replica: ShortCircuitReader | _ReplicaStream | None = None
        self._reads_locally = True
        #: True if the token has been renewed since the last byte arrived.
        self._is_renewed = False

    def next_piece(self, into: memoryview | None = None) -> fx.Steps[memoryview | None]:
        """Return the next bytes, valid until the next call; None at the end.

        The bytes may be placed at the start of `into`; then `piece.obj is into.obj`. A failed replica may leave
        unverified bytes in `into`, which the next replica overwrites unless this raises. Raises ChunkUnavailable,
        naming every replica's fault, once all replicas failed `read_rounds_max` times at the same byte;
        FileNotFound or FileChanged if the file is gone; AccessDenied if the token is not renewed.
        """
        while self._position < self._end:
            replica = self._replica or (yield from self._next_replica())
            # Whole blocks are read. Bytes after the range must not be written to a buffer that is larger than the
            # range.
            room = into[: self._end - self._position] if into is not None else None
            try:
                piece = yield from replica.next_piece(room)
            except ShortCircuitFailed:
                yield from replica.abandon()
                self._replica, self._reads_locally = self._stream(replica.hop), False
            except PeacefsError as fault:
                if isinstance(fault, TokenExpired) and not self._is_renewed:
                    yield from self._renew(replica)
                else:
                    yield from self._leave(replica, fault)
            else:
                self._position += len(piece)
                # After progress, all replicas may be tried again for the following bytes.
                self._rounds, self._candidates, self._is_renewed = 0, [], False
                return piece
        yield from self.close()
        return None

    def close(self) -> fx.Steps[None]:
        """Stop early. Does nothing after the end of the chunk."""
        if self._replica is not None:
            replica, self._replica = self._replica, None
            yield from replica.finish()

    def _next_replica(self) -> fx.Steps[ShortCircuitReader | _ReplicaStream]:
        if not self._candidates and self._rounds < read_rounds_max:
            yield from self._begin_round()
        if not self._candidates:
            raise self._unavailable()
        hop = self._candidates.pop(0)
        can_be_shared_now = self._reads_locally and can_be_shared(self._layout)
        self._replica = self._short_circuit(hop) if can_be_shared_now else self._stream(hop)
        return self._replica

    def _short_circuit(self, hop: Hop) -> ShortCircuitReader:
        wanted, timeout_s = self._end - self._position, self._hop_timeout_s
        return ShortCircuitReader(
            self._layout, hop, self._position, wanted, self._descriptors, timeout_s=timeout_s
        )

    def _stream(self, hop: Hop) -> _ReplicaStream:
        wanted = self._end - self._position
        return _ReplicaStream(self._layout, hop, self._position, wanted, self._hop_timeout_s)

    def _renew(self, replica: ShortCircuitReader | _ReplicaStream) -> fx.Steps[None]:
        """Get a new token, because a reader's rights must be checked again; then retry the same replica first."""
        self._replica = None
        yield from replica.abandon()
        self._layout, self._is_renewed = (yield from self._relocate(self._layout)), True
        self._candidates = sorted(
            self._layout.replicas, key=lambda hop: (hop.node != replica.node, hop.node in self._avoided)
        )

    def _begin_round(self) -> fx.Steps[None]:
        if self._rounds:
            # Repair may have moved replicas since the file was opened.
            try:
                self._layout = yield from self._relocate(self._layout)
            except (AccessDenied, PathError):
                # The reader lost its permission, or the file was deleted.
                raise
            except PeacefsError as fault:
                self._faults.setdefault("coordinator", fault)
        self._rounds += 1
        # The sort is stable: within both groups, the nearest replicas stay first.
        self._candidates = sorted(self._layout.replicas, key=lambda hop: hop.node in self._avoided)

    def _unavailable(self) -> ChunkUnavailable:
        faults = "; ".join(f"{node}: {fault.message}" for node, fault in self._faults.items())
        return ChunkUnavailable(
            f"chunk {show(self._layout.chunk)} cannot be read at byte {self._position}: "
            f"{faults or 'no datanode holds a replica'}"
        )

    def _leave(self, replica: ShortCircuitReader | _ReplicaStream, fault: PeacefsError) -> fx.Steps[None]:
        self._replica = None
        yield from replica.abandon()
        if replica.gave_something and isinstance(fault, PeerUnreachable):
            # The datanode may have hung up because the consumer paused for long. It can be tried again in its
            # turn.
            return
        self._faults.setdefault(replica.node, fault)
        self._avoided.add(replica.node)
        if isinstance(fault, ChecksumMismatch):
            # The read continues even if the report fails.
            with contextlib.suppress(PeacefsError):
                report = ReportCorrupt(self._layout.chunk, self._layout.version, replica.node)
                yield from fx.call(report, Done, timeout_s=corrupt_report_timeout_s)


class _ReplicaStream:
    """One datanode's answer to one ReadChunk. After a fault only `abandon` may be called."""

    def __init__(self, layout: ChunkLayout, hop: Hop, offset: int, length: int, hop_timeout_s: float) -> None:
        self.hop = hop
        self.node = hop.node
        self._request = ReadChunk(layout.token, layout.chunk, layout.version, offset, length)
        self._what = f"chunk {show(layout.chunk)} from {hop.node}"
        self._wanted_from = offset
        self._end = offset + length
        self._next_block = offset - offset % checksum_block_bytes
        self.gave_something = False
        self._ended = False
        #: The number of unread bytes of the current packet, their checksums, and whether it is the last packet.
        self._unread = 0
        self._sums = b""
        self._is_last = False
        self._timeout_s = hop_timeout_s
        self._connection: fx.Connection | None = None

    def next_piece(self, into: memoryview | None) -> fx.Steps[memoryview]:
        """Return verified bytes, at least one."""
        if self._ended:
            raise ChecksumMismatch(f"{self._what}: the replica ends at byte {self._next_block}")
        if self._connection is None:
            self._connection = yield from fx.connect(self.hop.address, self.node)
            yield from fx.send(self._connection, self._request, timeout_s=self._timeout_s)
        if self._wanted_from != self._next_block:
            # The next packet begins with bytes that were not requested.
            into = None
        data = yield from self._received(self._connection, into, _whole_blocks(into))
        piece = self._checked(memoryview(data))
        self.gave_something = True
        return piece

    def _received(self, connection: fx.Connection, into: memoryview | None, bytes_max: int) -> fx.Steps[Bytes]:
        """Return the next blocks, of the current packet or of a new one."""
        if self._unread:
            count = min(self._unread, bytes_max)
            data = yield from fx.receive_more(connection, count, timeout_s=self._timeout_s, into=into)
            self._unread -= count
            return data
        frame = yield from fx.receive(connection, timeout_s=self._timeout_s, into=into, payload_max=bytes_max)
        packet = frame.message
        if isinstance(packet, Failure):
            raise from_wire(packet.code, packet.message, self.node)
        if not isinstance(packet, Packet) or packet.offset != self._next_block:
            raise ProtocolViolation(f"{self._what}: something else came than the block at {self._next_block}")
        self._unread, self._sums, self._is_last = frame.unread, packet.sums, packet.last
        return frame.payload

    def _checked(self, data: memoryview) -> memoryview:
        sums, self._sums = self._sums, b""
        if self._unread:
            sums, self._sums = split_sums(sums, len(data))
        verify_blocks(data, sums, self._what)
        start = self._wanted_from - self._next_block
        stop = min(len(data), self._end - self._next_block)
        if stop <= start:
            raise ProtocolViolation(f"{self._what}: {len(data)} bytes came of which none was asked for")
        self._wanted_from = self._next_block + stop
        self._next_block += len(data)
        self._ended = self._is_last and not self._unread
        return data[start:stop]

    def finish(self) -> fx.Steps[None]:
        """Keep the connection for other reads if the answer was read to its end."""
        if self._ended and self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.release(connection)
        yield from self.abandon()

    def abandon(self) -> fx.Steps[None]:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.close(connection)


def _whole_blocks(into: memoryview | None) -> int:
    """Return how many bytes to read at once, so that as many as possible fit into `into` without a copy."""
    room = min(len(into), read_piece_bytes) if into is not None else 0
    return max(room // checksum_block_bytes * checksum_block_bytes, packet_bytes)
