"""Answers reads of one replica: sends its blocks as packets with the stored checksums.

The reader verifies the checksums. A reader on this host may get the open file and the checksums instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peacefs.datanode import metrics
from peacefs.datanode.store.chunk_store import ReadPlan, WantedRange
from peacefs.datanode.store.disk_faults import named_fault
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.layout import describe
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import AccessDenied, BadRequest, ChecksumMismatch, ChunkNotFound, PeacefsError
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import idle_connection_timeout_s, packet_bytes, small_chunk_bytes_max
from peacefs.protocol.messages import DescriptorShared, Message, Packet, ReadChunk, RequestDescriptor
from peacefs.protocol.tokens import ChunkRead, Signer
from peacefs.runtime import effects as fx

from .requester import Answer, SmallRequest, answer_all, failure_of, guarded


@dataclass(slots=True, eq=False)
class SmallRead(SmallRequest):
    """A request to read a small replica. The answer is one packet."""

    request: ReadChunk


class ChunkServer:
    """Sends chunks to readers, and reads them for the gateway. One instance serves all connections of a datanode.

    Tokens of remote readers are checked before anything is read. Corrupt replicas found here are reported.
    """

    def __init__(
        self,
        signer: Signer,
        store: ReplicaStore,
        changes: ChangeSink,
        *,
        wall_clock: Callable[[], float],
        reader_timeout_s: float = idle_connection_timeout_s,
    ) -> None:
        """`wall_clock` returns seconds since 1970, for the expiry of tokens.

        A reader that accepts nothing for `reader_timeout_s` is disconnected; it can reconnect and continue.
        """
        self._wall_clock = wall_clock
        self._signer = signer
        self._store = store
        self._changes = changes
        self._reader_timeout_s = reader_timeout_s

    def send_chunk(self, reader: fx.Connection, request: ReadChunk) -> fx.Steps[None]:
        """Answer one request. An error ends the answer, possibly between packets.

        Raises AccessDenied, BadRequest, ChunkNotFound, StaleVersion, DiskFault, or ChecksumMismatch, which the
        next heartbeat reports to the coordinator.
        """
        self._check(request.token, request.chunk)
        try:
            plan = yield from self._opened(request)
            yield from self._send_blocks(reader, plan)
        except ChecksumMismatch:
            self._report(request.chunk)
            raise

    def send_small(self, reads: Sequence[SmallRead]) -> fx.Steps[None]:
        """Answer several requests for small replicas. If data is not in memory, its request is answered later."""
        answers: list[Answer] = []
        permitted: list[SmallRead] = []
        for read in reads:
            try:
                self._check(read.request.token, read.request.chunk)
            except PeacefsError as fault:
                answers.append((read, failure_of(fault), b""))
            else:
                permitted.append(read)
        found = yield from self._store.read_small([_range(read.request) for read in permitted])
        sent = sent_bytes = 0
        for read, blocks in zip(permitted, found, strict=True):
            if blocks is None:
                yield from fx.spawn(guarded(self._send_later(read), [read]))
                continue
            packet = Packet(blocks.offset, blocks.sums, last=True)
            answers.append((read, packet, blocks.data))
            sent += 1
            sent_bytes += len(blocks.data)
        metrics.reads_served.inc(sent)
        metrics.bytes_read.inc(sent_bytes)
        yield from answer_all(answers)

    def _send_later(self, read: SmallRead) -> fx.Steps[None]:
        """Answer a request whose data is not in memory, or a request that fails."""
        answer: Message
        data = b""
        try:
            plan = yield from self.open(read.request)
            blocks = yield from self._store.read_blocks(plan)
            yield from self._store.close_read(plan)
            if blocks is None:
                raise BadRequest(f"no byte of that range is in a chunk of {plan.length}")
            if plan.length > small_chunk_bytes_max:
                raise ChunkNotFound(f"{describe(plan.chunk, plan.version)} was replaced while it was read")
            answer, data = Packet(blocks.offset, blocks.sums, last=True), blocks.data
            metrics.bytes_read.inc(len(data))
        except PeacefsError as fault:
            if isinstance(fault, ChecksumMismatch):
                self._report(read.request.chunk)
            answer = failure_of(fault)
        yield from answer_all([(read, answer, data)])

    def share_chunk(self, reader: fx.Connection, request: RequestDescriptor) -> fx.Steps[None]:
        """Answer one request with the open file of a large replica.

        A later deletion does not affect the reader: a sealed file is never changed. Raises the errors of
        `send_chunk`, and BadRequest for a small replica, whose file contains other chunks.
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
        """Read up to one packet of the range for a reader in this process, whose token was checked already.

        The bytes are verified. Raises the errors of `send_chunk`.
        """
        plan = yield from self.open(request)
        piece = yield from self.read_piece(plan, request, packet_bytes)
        yield from self.close(plan)
        return bytes(piece)

    def is_small(self, chunk: ChunkId, bytes_max: int) -> bool:
        """Return whether the answer to a read is short: at most `bytes_max` bytes of data, or an error."""
        replica = self._store.find(chunk)
        return replica is None or replica.length <= bytes_max

    def has(self, chunk: ChunkId) -> bool:
        """Return whether any version of a replica is here."""
        return self._store.find(chunk) is not None

    def open(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        """Open a replica for a reader in this process, whose token was checked, for `read_piece` and `close`.

        Raises the errors of `send_chunk`.
        """
        try:
            plan = yield from self._opened(request)
        except ChecksumMismatch:
            self._report(request.chunk)
            raise
        metrics.reads_served.inc()
        return plan

    def open_for_remote(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        """Open a replica as `open` does, but check the token first. Also raises AccessDenied."""
        self._check(request.token, request.chunk)
        return (yield from self.open(request))

    def read_piece(self, plan: ReadPlan, request: ReadChunk, bytes_max: int) -> fx.Steps[memoryview]:
        """Return the next requested bytes, at least one, from up to `bytes_max` verified bytes of the chunk.

        Raises the errors of `send_chunk`. The plan is closed after an error and after the last bytes.
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
        """Close a plan early. Does nothing if it is closed already."""
        return self._store.close_read(plan)

    def _check(self, text: str, chunk: ChunkId) -> None:
        token = self._signer.verify(text, ChunkRead, self._wall_clock())
        if token.chunk != chunk:
            raise AccessDenied("the token is for another chunk")

    def _opened(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        return (yield from self._store.open_read(request.chunk, request.version, request.offset, request.length))

    def _report(self, chunk: ChunkId) -> None:
        """Report a corrupt replica."""
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


def _range(request: ReadChunk) -> WantedRange:
    return WantedRange(request.chunk, request.version, request.offset, request.length)
