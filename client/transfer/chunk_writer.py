"""Writes one chunk through a pipeline, and through other pipelines if that one breaks.

Used by clients, by the WebHDFS gateway (which is a client too), and by the replicator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peacefs.protocol.checksums import chunk_checksum
from peacefs.protocol.errors import GrantLapsed, PeacefsError, PeerTimeout, PeerUnreachable, StaleVersion
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, Packet, WrittenChunk
from peacefs.runtime import effects as fx

from .chunk_buffer import OutgoingPacket, PacketSource, ResendableSource
from .next_hop import NextHop, link_timeout_s

write_attempts_max: Final = 4


#: Asks for another pipeline, given the failed nodes and the chunk to abandon.
AllocateAgain = Callable[[list[NodeId], ChunkId], fx.Steps[Allocated]]


def write_chunk(
    allocated: Allocated,
    buffer: ResendableSource,
    allocate_again: AllocateAgain,
    failed: list[NodeId],
    *,
    hop_timeout_s: float = default_hop_timeout_s,
) -> fx.Steps[WrittenChunk]:
    """Write a chunk to the disks of all nodes of a pipeline. Nodes that failed are added to `failed`.

    Raises the source's or the coordinator's error. Raises a hop's error if another pipeline cannot fix it, or
    `write_attempts_max` pipelines failed.
    """
    for attempts_left in reversed(range(write_attempts_max)):
        try:
            return (yield from send_chunk(allocated, buffer, hop_timeout_s=hop_timeout_s))
        except PeacefsError as fault:
            if not attempts_left or buffer.failed_at_source() or not _another_pipeline_mends(fault):
                raise
            if fault.culprit is not None and fault.culprit not in failed:
                failed.append(fault.culprit)
            reason = fault.message
        try:
            allocated = yield from allocate_again(failed, allocated.chunk)
        except PeacefsError as refusal:
            raise type(refusal)(f"{refusal.message} (another pipeline was needed because {reason})") from None
    raise AssertionError("the last attempt returns or raises")


def send_chunk(
    allocated: Allocated, packets: PacketSource, *, hop_timeout_s: float = default_hop_timeout_s
) -> fx.Steps[WrittenChunk]:
    """Make one attempt. Raises the source's error, or the pipeline's with the culprit that it is attributed to."""
    head = NextHop(allocated.pipeline, link_timeout_s(-1, len(allocated.pipeline), hop_timeout_s))
    try:
        written = yield from _send(allocated, packets, head, hop_timeout_s)
    except PeacefsError:
        yield from head.abandon()
        raise
    yield from head.release()
    return written


def _send(
    allocated: Allocated, packets: PacketSource, head: NextHop, hop_timeout_s: float
) -> fx.Steps[WrittenChunk]:
    chunk, version = allocated.chunk, allocated.version
    # Hops would treat a longer silence as the writer's death.
    wait_s = hop_timeout_s / 3
    packet: OutgoingPacket | None = None
    while packet is None:
        packet = yield from packets.packet(0, wait_s=wait_s)
    yield from head.connect()
    yield from head.open(allocated.token, chunk, version, packet.sums, packet.data, last=packet.last)
    sums = [packet.sums]
    length = len(packet.data)
    last = packet.last
    while not last:
        packet = yield from packets.packet(len(sums), wait_s=wait_s)
        if packet is None:
            yield from head.send(Packet(length, b""))
            continue
        yield from head.send(Packet(packet.offset, packet.sums, packet.last), packet.data)
        sums.append(packet.sums)
        length += len(packet.data)
        last = packet.last
    checksum = chunk_checksum(b"".join(sums))
    receipts = yield from head.acknowledgement(chunk, version, length, checksum)
    return WrittenChunk(chunk, version, length, checksum, receipts)


def _another_pipeline_mends(fault: PeacefsError) -> bool:
    """Return whether another pipeline may succeed, because a node or chance is to blame.

    A refused token would be refused everywhere. But if the grant lapsed, the writer can get another one.
    """
    return fault.culprit is not None or isinstance(
        fault, PeerUnreachable | PeerTimeout | StaleVersion | GrantLapsed
    )
