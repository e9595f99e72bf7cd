"""Copies a replica of this datanode to others, as the coordinator orders, for repair or a higher replication."""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.client.transfer.chunk_buffer import OutgoingPacket
from peacefs.client.transfer.chunk_writer import send_chunk
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import ChecksumMismatch, PeacefsError, StaleVersion
from peacefs.protocol.ids import show
from peacefs.protocol.limits import chunk_bytes_max, copy_bytes_per_second, packet_bytes
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, ReplicateChunk, WrittenChunk
from peacefs.runtime import effects as fx


class Replicator:
    """Sends a replica like a writer, but from disk. If a copy fails, the coordinator plans it again."""

    def __init__(
        self,
        store: ReplicaStore,
        changes: ChangeSink,
        *,
        budget: CopyBudget | None = None,
        hop_timeout_s: float = default_hop_timeout_s,
    ) -> None:
        self._store = store
        self._changes = changes
        self._budget = budget or CopyBudget(copy_bytes_per_second)
        #: The budget for balancing, and the rate of the last order. Bytes sent for balancing also count for the
        #: other budget.
        self._balancing: tuple[float, CopyBudget] | None = None
        self._hop_timeout_s = hop_timeout_s

    def replicate(self, order: ReplicateChunk) -> fx.Steps[WrittenChunk]:
        """Copy a replica to the disks of all nodes of the order's pipeline.

        Raises ChunkNotFound, StaleVersion, DiskFault, ChecksumMismatch (of the replica here, which the next
        heartbeat reports), or the pipeline's error with its culprit.
        """
        try:
            plan = yield from self._store.open_read(order.chunk, order.version, 0, chunk_bytes_max)
            return (yield from self._send(order, plan))
        except ChecksumMismatch as fault:
            replica = self._store.find(order.chunk)
            # With a culprit, the replica here is good: the culprit received damaged bytes.
            if replica is not None and fault.culprit is None:
                self._changes.corrupt(replica)
            raise

    def _send(self, order: ReplicateChunk, plan: ReadPlan) -> fx.Steps[WrittenChunk]:
        allocated = Allocated(order.chunk, order.version, order.pipeline, order.token)
        try:
            if plan.version != order.version:
                raise StaleVersion(f"chunk {show(order.chunk)} already has version {show(plan.version)} here")
            packets = _StoredPackets(self._store, plan, self._budgets(order))
            written = yield from send_chunk(allocated, packets, hop_timeout_s=self._hop_timeout_s)
        except PeacefsError:
            yield from self._store.close_read(plan)
            raise
        yield from self._store.close_read(plan)
        return written

    def _budgets(self, order: ReplicateChunk) -> list[CopyBudget]:
        if not order.bytes_per_second:
            return [self._budget]
        balancing = self._balancing
        if balancing is None or balancing[0] != order.bytes_per_second:
            balancing = self._balancing = order.bytes_per_second, CopyBudget(order.bytes_per_second, packet_bytes)
        return [self._budget, balancing[1]]


class _StoredPackets:
    """A replica's verified blocks as a `PacketSource`. A packet is late only if the budget is used up."""

    def __init__(self, store: ReplicaStore, plan: ReadPlan, budgets: Sequence[CopyBudget]) -> None:
        self._store = store
        self._plan = plan
        self._budgets = budgets
        #: A packet that was read, and the time from which it may be sent.
        self._waiting: tuple[OutgoingPacket, float] | None = None

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        now_s = yield from fx.now()
        if self._waiting is None:
            packet = yield from self._read()
            size = len(packet.data)
            self._waiting = packet, max(budget.reserve(now_s, size) for budget in self._budgets)
        packet, send_at_s = self._waiting
        if send_at_s > now_s:
            yield from fx.sleep(min(send_at_s - now_s, wait_s))
            if send_at_s - now_s > wait_s:
                return None
        self._waiting = None
        return packet

    def _read(self) -> fx.Steps[OutgoingPacket]:
        blocks = yield from self._store.read_blocks(self._plan)
        assert blocks is not None, "nothing is asked for after the last packet"
        return OutgoingPacket(*blocks, last=self._plan.at == self._plan.end)
