"""Answers reads: the blocks of one replica as packets, with the stored checksums for the reader to verify; or the
open file itself and the checksums, for a reader on this host.
"""

from __future__ import annotations

from collections.abc import Callable

from peacefs.datanode import metrics
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.datanode.store.disk_faults import named_fault
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.layout import describe
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import AccessDenied, BadRequest, ChecksumMismatch, PeacefsError
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import idle_connection_timeout_s, packet_bytes
from peacefs.protocol.messages import DescriptorShared, ReadChunk, RequestDescriptor
from peacefs.protocol.tokens import ChunkRead, Signer
from peacefs.runtime import effects as fx


class ChunkServer:
    """Sends chunks; one instance serves all connections of a datanode."""

    def __init__(
        self,
        signer: Signer,
        store: ReplicaStore,
        changes: ChangeSink,
        *,
        wall_clock: Callable[[], float],
        reader_timeout_s: float = idle_connection_timeout_s,
    ) -> None:
        """`wall_clock` gives seconds since 1970, which tokens expire by; it is called, as those of the hop are.

        A reader that takes nothing for `reader_timeout_s` is hung up on: it may come again where it was.
        """
        self._wall_clock = wall_clock
        self._signer = signer
        self._store = store
        self._changes = changes
        self._reader_timeout_s = reader_timeout_s

    def send_chunk(self, reader: fx.Connection, request: ReadChunk) -> fx.Steps[None]:
        """Answers one request; an error ends the answer, before the first packet or after any other.

        Raises AccessDenied, BadRequest, ChunkNotFound, StaleVersion, DiskFault, or ChecksumMismatch, upon which
        the next heartbeat tells the coordinator.
        """
        self._check(request.token, request.chunk)
        try:
            plan = yield from self._opened(request)
            yield from self._send_blocks(reader, plan)
        except ChecksumMismatch:
            self._report(request.chunk)
            raise

    def share_chunk(self, reader: fx.Connection, request: RequestDescriptor) -> fx.Steps[None]:
        """Answers one request with the open file of a large replica. What becomes of it here makes no difference
        to who has it: a file that has its name is never changed.

        Raises what `send_chunk` does, and BadRequest for a small one, whose file has other chunks in it.
        """
        self._check(request.token, request.chunk)
        plan = yield from self.open(ReadChunk(request.token, request.chunk, request.version, 0, 1))
        try:
            yield from self._share(reader, plan)
        except PeacefsError:
            yield from self._store.close_read(plan)
            raise
        yield from self._store.close_read(plan)
        metrics.descriptors_shared.inc()

    def _share(self, reader: fx.Connection, plan: ReadPlan) -> fx.Steps[None]:
        if plan.file is None:
            raise BadRequest(f"a chunk of {plan.length} bytes has no file of its own to share")
        try:
            answer = DescriptorShared(plan.sums, plan.length)
            yield from fx.send_descriptor(reader, answer, plan.file, timeout_s=self._reader_timeout_s)
        except OSError as error:
            raise named_fault(error, f"cannot share {describe(plan.chunk, plan.version)}") from None

    def read_small(self, request: ReadChunk) -> fx.Steps[bytes]:
        """The same for a reader in this process that has a token: what is left of the range in one packet at most,
        verified. Raises what `send_chunk` does.
        """
        plan = yield from self.open(request)
        piece = yield from self.read_piece(plan, request, packet_bytes)
        yield from self.close(plan)
        return bytes(piece)

    def has(self, chunk: ChunkId) -> bool:
        """Return whether a replica is here, of whichever version."""
        return self._store.find(chunk) is not None

    def open(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        """A replica for a reader in this process that has a token, for `read_piece` and `close`.

        Raises what `send_chunk` does.
        """
        try:
            plan = yield from self._opened(request)
        except ChecksumMismatch:
            self._report(request.chunk)
            raise
        metrics.reads_served.inc()
        return plan

    def read_piece(self, plan: ReadPlan, request: ReadChunk, bytes_max: int) -> fx.Steps[memoryview]:
        """The next bytes that were asked for, out of `bytes_max` of the chunk, verified: one at least.

        Raises what `send_chunk` does; after that, and with the last bytes, the plan is closed.
        """
        try:
            blocks = yield from self._store.read_blocks(plan, bytes_max)
        except ChecksumMismatch:
            self._report(request.chunk)
            raise
        if blocks is None:
            raise BadRequest(f"no byte of that range is in a chunk of {plan.length}")
        metrics.bytes_read.inc(len(blocks.data))
        start = max(request.offset - blocks.offset, 0)
        return memoryview(blocks.data)[start : request.offset + request.length - blocks.offset]

    def close(self, plan: ReadPlan) -> fx.Steps[None]:
        """For who wants no more of it; harmless when it is closed."""
        return self._store.close_read(plan)

    def _check(self, text: str, chunk: ChunkId) -> None:
        token = self._signer.verify(text, ChunkRead, self._wall_clock())
        if token.chunk != chunk:
            raise AccessDenied("the token is for another chunk")

    def _opened(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        return (yield from self._store.open_read(request.chunk, request.version, request.offset, request.length))

    def _report(self, chunk: ChunkId) -> None:
        """A replica is corrupt."""
        replica = self._store.find(chunk)
        if replica is not None:
            self._changes.corrupt(replica)

    def _send_blocks(self, reader: fx.Connection, plan: ReadPlan) -> fx.Steps[None]:
        if plan.at == plan.end:
            raise BadRequest(f"no byte of that range is in a chunk of {plan.length}")
        metrics.reads_served.inc()
        try:
            timeout_s = self._reader_timeout_s
            while (sent := (yield from self._store.send_blocks(plan, reader, timeout_s=timeout_s))) is not None:
                metrics.bytes_read.inc(sent)
        except PeacefsError:
            yield from self._store.close_read(plan)
            raise
