"""Reads a range of one chunk from whichever replica can give it.

Nothing is handed out before its checksum has been verified here, where the bytes are used. A replica that fails
is left in the middle of the stream; the next one continues at the first byte that is still missing.
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

# A reader that met a corrupt replica goes on with another; saying so must not hold it up for long.
corrupt_report_timeout_s: Final = 2.0
read_rounds_max: Final = 2


#: Asks where the replicas of a chunk are now, whose layout is known; gives it with a new token.
Relocate = Callable[[ChunkLayout], fx.Steps[ChunkLayout]]


class ChunkReader:
    """Gives the bytes from `offset` on, `length` of them, piece by piece; belongs to one participant.

    The readers of one file share `avoided`, nodes that failed any of them and are asked last, and `descriptors`.
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
        #: The first fault of each, which says most.
        self._faults: dict[NodeId, PeacefsError] = {}
        self._replica: ShortCircuitReader | _ReplicaStream | None = None
        self._reads_locally = True
        #: True if the token has been renewed since the last byte arrived.
        self._is_renewed = False

    def next_piece(self, into: memoryview | None = None) -> fx.Steps[memoryview | None]:
        """The next bytes, valid until the next call; None at the end.

        If there is room for them they may lie in `into`, from its start: then `piece.obj is into.obj`. What a
        failed replica left there is overwritten, or stays behind when this raises.
        Raises ChunkUnavailable, which names every replica's fault, once all have failed
        `read_rounds_max` times at the same byte; FileNotFound or FileChanged for a file that has gone;
        AccessDenied if the coordinator does not renew the token.
        """
        while self._position < self._end:
            replica = self._replica or (yield from self._next_replica())
            # Blocks are read whole; what follows the range must not reach a buffer that is larger than the range.
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
                # Whoever gives something earns all replicas a new chance at what follows.
                self._rounds, self._candidates, self._is_renewed = 0, [], False
                return piece
        yield from self.close()
        return None

    def close(self) -> fx.Steps[None]:
        """For a consumer that wants no more; after the end there is nothing left to close."""
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
        """The token was good for as long as a reader's rights are taken for granted: asks for another, then the
        same replica once more."""
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
                # The rights were taken away, or what was opened is not there any more.
                raise
            except PeacefsError as fault:
                self._faults.setdefault("coordinator", fault)
        self._rounds += 1
        # Stable: nearest first among those that are not avoided, and among those that are.
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
            # It may only have hung up on a consumer that made a long pause: it is asked again in its turn.
            return
        self._faults.setdefault(replica.node, fault)
        self._avoided.add(replica.node)
        if isinstance(fault, ChecksumMismatch):
            # The read does not depend on it.
            with contextlib.suppress(PeacefsError):
                report = ReportCorrupt(self._layout.chunk, self._layout.version, replica.node)
                yield from fx.call(report, Done, timeout_s=corrupt_report_timeout_s)


class _ReplicaStream:
    """One datanode's answer to one ReadChunk. After a fault it is only good for `abandon`."""

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
        #: The unread rest of the current packet, its checksums, and whether it is the last.
        self._unread = 0
        self._sums = b""
        self._is_last = False
        self._timeout_s = hop_timeout_s
        self._connection: fx.Connection | None = None

    def next_piece(self, into: memoryview | None) -> fx.Steps[memoryview]:
        """Verified bytes, at least one."""
        if self._ended:
            raise ChecksumMismatch(f"{self._what}: the replica ends at byte {self._next_block}")
        if self._connection is None:
            self._connection = yield from fx.connect(self.hop.address, self.node)
            yield from fx.send(self._connection, self._request, timeout_s=self._timeout_s)
        if self._wanted_from != self._next_block:
            # The next packet begins with bytes that are not wanted.
            into = None
        data = yield from self._received(self._connection, into, _whole_blocks(into))
        piece = self._checked(memoryview(data))
        self.gave_something = True
        return piece

    def _received(self, connection: fx.Connection, into: memoryview | None, bytes_max: int) -> fx.Steps[Bytes]:
        """The next blocks; of the packet that has begun, or of the next."""
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
        """Keeps the connection for others if nothing more will come on it."""
        if self._ended and self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.release(connection)
        yield from self.abandon()

    def abandon(self) -> fx.Steps[None]:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.close(connection)


def _whole_blocks(into: memoryview | None) -> int:
    """Return how many bytes to take at once if they may be laid there; what does not fit has to be copied."""
    room = min(len(into), read_piece_bytes) if into is not None else 0
    return max(room // checksum_block_bytes * checksum_block_bytes, packet_bytes)
