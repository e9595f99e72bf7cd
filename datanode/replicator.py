"""Copies a replica of this datanode to others, as the coordinator orders: for repair, for a higher replication."""

from __future__ import annotations

from peacefs.client.chunk_buffer import OutgoingPacket
from peacefs.client.chunk_writer import send_chunk
from peacefs.protocol import effects as fx
from peacefs.protocol.errors import ChecksumMismatch, ChunkNotFound
from peacefs.protocol.ids import show
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, Replica, ReplicateChunk, WrittenChunk

from .changes import Changes
from .chunk_store import ChunkStore, ReadPlan


class Replicator:
    """Sends as a writer does, from the disk in place of a buffer. There is no second attempt: that is planned anew."""

    def __init__(
        self, store: ChunkStore, changes: Changes, *, hop_timeout_s: float = default_hop_timeout_s
    ) -> None:
        self._store = store
        self._changes = changes
        self._hop_timeout_s = hop_timeout_s

    def replicate(self, order: ReplicateChunk) -> fx.Steps[WrittenChunk]:
        """Returns once every node of the order's pipeline has the replica on its disk.

        Raises ChunkNotFound, ChecksumMismatch (of the replica here, which the next heartbeat reports), or the
        pipeline's fault with its culprit.
        """
        replica = self._store.find(order.chunk)
        if replica is None or replica.version != order.version:
            raise ChunkNotFound(f"there is no chunk {show(order.chunk)} version {show(order.version)} here")
        plan = yield from self._store.open_read(order.chunk, order.version, 0, replica.length)
        packets = _StoredPackets(self._store, plan, replica)
        allocated = Allocated(order.chunk, order.version, order.pipeline, order.token)
        try:
            return (yield from send_chunk(allocated, packets, hop_timeout_s=self._hop_timeout_s))
        except ChecksumMismatch as fault:
            if fault.culprit is None:
                self._changes.corrupt(replica)
            raise


class _StoredPackets:
    """A replica's verified blocks as a `PacketSource`; the disk is never late, so there is always a packet."""

    def __init__(self, store: ChunkStore, plan: ReadPlan, replica: Replica) -> None:
        self._store = store
        self._plan = plan
        self._replica = replica

    def packet(self, index: int, *, patience_s: float) -> fx.Steps[OutgoingPacket | None]:
        blocks = yield from self._store.read_blocks(self._plan)
        if blocks is None:
            raise ChunkNotFound(f"chunk {show(self._replica.chunk)} went away while it was being copied")
        offset, sums, data = blocks
        return OutgoingPacket(offset, sums, data, offset + len(data) == self._replica.length)
