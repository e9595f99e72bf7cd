"""Writes and reads the small chunks of several files together, with one send for each datanode.

The datanodes then serve the chunks of a send as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.protocol.checksums import block_checksums, chunk_checksum, verify_blocks
from peacefs.protocol.errors import ChecksumMismatch, PeacefsError, PeerTimeout, ProtocolViolation, from_wire
from peacefs.protocol.frames import Frame
from peacefs.protocol.ids import show
from peacefs.protocol.limits import batched_chunk_bytes_max
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import (
    Allocated,
    ChunkLayout,
    Failure,
    Hop,
    Packet,
    ReadChunk,
    WriteAck,
    WriteChunk,
    WrittenChunk,
)
from peacefs.runtime import effects as fx

from .batch_link import BatchLink, OutgoingChunk
from .next_hop import link_timeout_s

# The answers of all heads arrive at the same time, but are read one head after the other. So each head has at
# least this part of a hop's timeout when its turn comes.
_TURN_MIN = 0.1


def send_chunks(
    chunks: Sequence[tuple[Allocated, bytes]], *, hop_timeout_s: float = default_hop_timeout_s
) -> fx.Steps[list[WrittenChunk | PeacefsError]]:
    """Make one attempt to write each chunk. Return for each what `send_chunk` would return or raise.

    A chunk has at most `batched_chunk_bytes_max` bytes. One that fails does not affect the others.
    """
    outgoing = [_outgoing(allocated, data, hop_timeout_s) for allocated, data in chunks]
    outcomes: dict[OutgoingChunk, WrittenChunk | PeacefsError] = {}
    groups: dict[Hop, list[OutgoingChunk]] = {}
    for (allocated, _data), chunk in zip(chunks, outgoing, strict=True):
        groups.setdefault(allocated.pipeline[0], []).append(chunk)
    links = [(BatchLink(head), group) for head, group in groups.items()]
    try:
        for link, group in links:
            try:
                yield from link.send(group)
            except PeacefsError as fault:
                outcomes.update(dict.fromkeys(group, fault))
        sent_s = yield from fx.now()
        for link, _group in links:
            waits_until_s = (yield from fx.now()) + hop_timeout_s * _TURN_MIN
            while not link.is_over():
                answers = yield from link.answers((yield from fx.now()), sent_s, waits_until_s)
                outcomes.update((chunk, _written(chunk, answer)) for chunk, answer in answers)
    finally:
        for link, _group in links:
            yield from link.end()
    return [outcomes[chunk] for chunk in outgoing]


def _outgoing(allocated: Allocated, data: bytes, hop_timeout_s: float) -> OutgoingChunk:
    assert len(data) <= batched_chunk_bytes_max
    sums = block_checksums(data)
    nodes = [hop.node for hop in allocated.pipeline]
    opening = WriteChunk(allocated.token, allocated.chunk, allocated.version, sums, last=True)
    timeout_s = link_timeout_s(-1, len(nodes), hop_timeout_s)
    return OutgoingChunk(opening, data, len(data), chunk_checksum(sums), nodes, timeout_s)


def _written(chunk: OutgoingChunk, answer: WriteAck | PeacefsError) -> WrittenChunk | PeacefsError:
    if not isinstance(answer, WriteAck):
        return answer
    opening = chunk.opening
    return WrittenChunk(opening.chunk, opening.version, chunk.length, chunk.checksum, answer.receipts)


def read_chunks(
    chunks: Sequence[ChunkLayout], *, hop_timeout_s: float = default_hop_timeout_s
) -> fx.Steps[list[bytes | PeacefsError]]:
    """Read each whole chunk from its first replica. Return the verified data or the error of each.

    A chunk has a replica, and 1 to `batched_chunk_bytes_max` bytes. One that fails does not affect the others.
    """
    outcomes: dict[int, bytes | PeacefsError] = {}
    groups: dict[Hop, list[int]] = {}
    for index, chunk in enumerate(chunks):
        assert 0 < chunk.length <= batched_chunk_bytes_max
        groups.setdefault(chunk.replicas[0], []).append(index)
    reads = [_Reads(hop, {index: chunks[index] for index in group}) for hop, group in groups.items()]
    try:
        for each in reads:
            outcomes.update((yield from each.ask(hop_timeout_s)))
        asked_s = yield from fx.now()
        for each in reads:
            until_s = max(asked_s + hop_timeout_s, (yield from fx.now()) + hop_timeout_s * _TURN_MIN)
            while each.unanswered:
                outcomes.update((yield from each.answers(until_s - (yield from fx.now()))))
    finally:
        for each in reads:
            yield from each.end()
    return [outcomes[index] for index in range(len(chunks))]


class _Reads:
    """The requests to one datanode. Their tags are one more than the chunks' indexes."""

    def __init__(self, hop: Hop, unanswered: dict[int, ChunkLayout]) -> None:
        self._hop = hop
        #: In the order of the requests, in which a datanode without tags answers.
        self.unanswered = unanswered
        self._connection: fx.Connection | None = None

    def ask(self, timeout_s: float) -> fx.Steps[dict[int, PeacefsError]]:
        """Send all requests. Return the errors of the chunks if that fails."""
        frames = [
            Frame(ReadChunk(chunk.token, chunk.chunk, chunk.version, 0, chunk.length), b"", index + 1)
            for index, chunk in self.unanswered.items()
        ]
        try:
            self._connection = yield from fx.connect(self._hop.address, self._hop.node)
            yield from fx.send_frames(self._connection, frames, timeout_s=timeout_s)
        except PeacefsError as fault:
            return (yield from self._fail(fault))
        return {}

    def answers(self, timeout_s: float) -> fx.Steps[dict[int, bytes | PeacefsError]]:
        """Return the next answers. If the connection fails, return its error for every unanswered chunk."""
        assert self._connection is not None
        try:
            if timeout_s <= 0:
                raise PeerTimeout(f"{self._hop.node} did not answer in time")
            frames = yield from fx.receive_frames(self._connection, timeout_s=timeout_s)
        except PeacefsError as fault:
            return dict((yield from self._fail(fault)))
        answered: dict[int, bytes | PeacefsError] = {}
        for frame in frames:
            index = frame.tag - 1 if frame.tag else next(iter(self.unanswered), -1)
            chunk = self.unanswered.pop(index, None)
            if chunk is not None:
                answered[index] = _verified(chunk, frame, self._hop)
        return answered

    def _fail(self, fault: PeacefsError) -> fx.Steps[dict[int, PeacefsError]]:
        failed, self.unanswered = list(self.unanswered), {}
        if self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.close(connection)
        return dict.fromkeys(failed, fault)

    def end(self) -> fx.Steps[None]:
        """Keep the connection for other requests if every request was answered."""
        if self.unanswered:
            yield from self._fail(PeerTimeout("broken off"))
        elif self._connection is not None:
            yield from fx.release(self._connection)


def _verified(chunk: ChunkLayout, frame: Frame, hop: Hop) -> bytes | PeacefsError:
    packet, what = frame.message, f"chunk {show(chunk.chunk)} from {hop.node}"
    if isinstance(packet, Failure):
        return from_wire(packet.code, packet.message, hop.node)
    if not isinstance(packet, Packet) or packet.offset or not packet.last:
        return ProtocolViolation(f"{what}: something else came than the whole chunk")
    if len(frame.payload) != chunk.length:
        return ChecksumMismatch(f"{what}: {len(frame.payload)} bytes came, not {chunk.length}")
    try:
        verify_blocks(frame.payload, packet.sums, what)
    except ChecksumMismatch as fault:
        return fault
    return bytes(frame.payload)
