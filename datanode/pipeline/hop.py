"""This datanode as one hop of a pipeline: receives a chunk, and forwards and stores it at the same time.

    upstream                       this hop                          next hop
    WriteChunk(first packet)  ->   check token, stage
                                   forward, verify, store        ->  WriteChunk(first packet)
    Packet ...                ->   forward, verify, store        ->  Packet ...
    Packet(last)              ->   forward, verify, store        ->  Packet(last)
                                   seal (fsync)                  <-  WriteAck(their receipts)
                              <-   WriteAck(own receipt + theirs)

Every hop verifies what it stores, and compares its successor's acknowledgement with its own replica.
"""

from __future__ import annotations

from collections.abc import Callable

from peacefs.client.transfer.next_hop import NextHop
from peacefs.datanode import metrics
from peacefs.datanode.store.chunk_store import Sealed, Staged
from peacefs.datanode.store.interface import ChunkIntake
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest, PeacefsError, ProtocolViolation
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Packet, Receipt, Replica, WriteAck, WriteChunk
from peacefs.protocol.tokens import Signer
from peacefs.runtime import effects as fx

from .active_streams import ActiveStream, StreamsUnderWay, report_end
from .batch_hop import BatchHop
from .latency_samples import LatencySamples
from .orphaned_chunks import OrphanedChunks
from .write_permits import Place, WritePermits, acknowledgement_wait_min


class _Stopwatch:
    """Splits the time of one chunk into steps. Each reading of the clock ends a step and begins the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.looked_s = 0.0
        #: Time used by this node's disk, and time spent waiting for the next hop.
        self.disk_s = 0.0
        self.onward_s = 0.0
        #: The time when the last packet had been forwarded.
        self.forwarded_s = 0.0

    def lap(self) -> float:
        """Read the clock, and return the seconds since the last reading."""
        before_s, self.looked_s = self.looked_s, self._clock()
        return self.looked_s - before_s


class PipelineHop:
    """Receives chunks, stores them, and forwards them. One instance serves all connections of a datanode.

    `DataRequests` runs `receive_chunk` for each chunk. A hop acknowledges only what is on its own disk and on the
    disks of all hops after it, with the same length and checksum.
    """

    def __init__(
        self,
        signer: Signer,
        store: ChunkIntake,
        changes: ChangeSink,
        streams: StreamsUnderWay,
        samples: LatencySamples | None = None,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        hop_timeout_s: float = default_hop_timeout_s,
    ) -> None:
        """Serve the node to which `streams` belong.

        A hop calls the clocks between all steps of a chunk; an effect would cost too much there. `clock` returns
        monotonic seconds, `wall_clock` seconds since 1970, for the expiry of tokens.
        """
        self._clock = clock
        self._node = streams.node
        self._streams = streams
        self._signer = signer
        self._store = store
        self._changes = changes
        #: Keeps chunks whose upstream died for a moment; None to discard them.
        self.orphans: OrphanedChunks | None = None
        self._samples = samples or LatencySamples()
        self.hop_timeout_s = hop_timeout_s
        self._permits = WritePermits(signer, self._node, wall_clock, hop_timeout_s)
        #: Receives whole small chunks, in batches.
        self.batches = BatchHop(
            signer, store, changes, streams, self._samples, self._permits, clock, hop_timeout_s
        )

    def receive_chunk(self, upstream: fx.Connection, opening: WriteChunk, data: Bytes) -> fx.Steps[None]:
        """Receive a chunk after its opening frame, and acknowledge it.

        Raises the error of this hop or a later one, with the culprit. If another hop failed after this replica was
        sealed, the replica stays: it may have been acknowledged before. If no file refers to it, the coordinator
        has it deleted.
        """
        token = self._permits.check(opening)
        if not token.grant:
            yield from self._receive(upstream, opening, data, ActiveStream(token, 0.0))
            return
        is_head = token.pipeline[0].node == self._node
        stream = self._streams.begin(token, self._clock())
        try:
            length = yield from self._receive(upstream, opening, data, stream)
        except PeacefsError:
            self._streams.end(stream)
            if is_head:
                yield from report_end(opening, None)
            raise
        self._streams.end(stream)
        if is_head:
            yield from report_end(opening, length)

    def _receive(
        self, upstream: fx.Connection, opening: WriteChunk, data: Bytes, stream: ActiveStream
    ) -> fx.Steps[int]:
        """Return the chunk's length, once it is acknowledged."""
        place, watch = self._permits.place(stream.token), _Stopwatch(self._clock)
        # Only the token determines where to connect: the handshake proves to the peer that this node knows the
        # secret.
        onward = NextHop(place.route, place.link_timeout_s) if place.route else None
        try:
            sealed = yield from self._take_in(upstream, opening, data, onward, stream, watch)
            receipts = [
                self._signer.receipt(self._node, opening.chunk, opening.version, sealed.length, sealed.checksum)
            ]
            if onward is not None:
                receipts += yield from self._compare(opening, sealed, onward, place, watch)
        except PeacefsError as fault:
            if onward is not None:
                yield from onward.abandon()
            self._permits.ascribe(fault, place)
            metrics.pipeline_failures.labels(fault.code).inc()
            raise
        ack = WriteAck(opening.chunk, opening.version, sealed.length, sealed.checksum, receipts, watch.onward_s)
        yield from fx.send(upstream, ack, timeout_s=self.hop_timeout_s)
        return sealed.length

    def _take_in(
        self,
        upstream: fx.Connection,
        opening: WriteChunk,
        data: Bytes,
        onward: NextHop | None,
        stream: ActiveStream,
        watch: _Stopwatch,
    ) -> fx.Steps[Sealed]:
        """Forward and store all packets, and seal the chunk."""
        staged = self._store.stage(opening.chunk, opening.version)
        sums = opening.sums
        try:
            if onward is not None:
                yield from onward.connect()
            watch.lap()
            if onward is not None:
                yield from onward.open(
                    opening.token, opening.chunk, opening.version, sums, data, last=opening.last
                )
                watch.onward_s += watch.lap()
            if not opening.last:
                yield from self._store.write(staged, sums, data)
                watch.disk_s += watch.lap()
                sums, data = yield from self._take_packets(upstream, staged, len(data), onward, watch, stream)
            watch.forwarded_s = watch.looked_s
            sealed = yield from self._store.seal(staged, sums, data)
            seal_s = watch.lap()
        except PeacefsError as fault:
            if self.orphans is not None:
                yield from self.orphans.give_up(staged, stream.token, fault)
            else:
                yield from self._store.discard(staged)
            raise
        metrics.seal_seconds.observe(seal_s)
        watch.disk_s += seal_s
        self._samples.took(watch.looked_s, self._node, watch.disk_s, sealed.length)
        replica = Replica(opening.chunk, opening.version, sealed.length)
        metrics.chunks_written.inc()
        metrics.bytes_written.inc(sealed.length)
        self._changes.added(replica)
        # If the disk has failed since, its replicas were reported as removed before this one was reported as
        # added.
        if self._store.find(opening.chunk) is None:
            self._changes.removed(replica)
        return sealed

    def _take_packets(
        self,
        upstream: fx.Connection,
        staged: Staged,
        length: int,
        onward: NextHop | None,
        watch: _Stopwatch,
        stream: ActiveStream,
    ) -> fx.Steps[tuple[bytes, Bytes]]:
        """Forward all packets, and store all but the last; return the last one's checksums and data."""
        while True:
            stream.waits(watch.looked_s)
            packet, data, *_ = yield from fx.receive(upstream, timeout_s=self.hop_timeout_s)
            watch.lap()
            stream.receives(watch.looked_s, length + len(data))
            if not isinstance(packet, Packet):
                raise ProtocolViolation(f"{type(packet).__name__} in the middle of a chunk")
            if packet.offset != length:
                raise ProtocolViolation(f"a packet for byte {packet.offset} came after byte {length}")
            length += len(data)
            if length > chunk_bytes_max:
                raise BadRequest(f"a chunk is at most {chunk_bytes_max} bytes long")
            if onward is not None:
                yield from onward.send(packet, data)
                watch.onward_s += watch.lap()
            if packet.last:
                return packet.sums, data
            # A writer with a slow source sends empty packets to show that it is alive.
            if len(data):
                yield from self._store.write(staged, packet.sums, data)
                watch.disk_s += watch.lap()

    def _compare(
        self, opening: WriteChunk, sealed: Sealed, onward: NextHop, place: Place, watch: _Stopwatch
    ) -> fx.Steps[list[Receipt]]:
        """Return the receipts of the hops after this one, if they hold exactly what this one holds."""
        # An answer that has arrived is read even if this hop's own disk took long.
        sealing_s = watch.looked_s - watch.forwarded_s
        timeout_s = max(place.link_timeout_s - sealing_s, self.hop_timeout_s * acknowledgement_wait_min)
        receipts = yield from onward.acknowledgement(
            opening.chunk, opening.version, sealed.length, sealed.checksum, timeout_s=timeout_s
        )
        watch.onward_s += watch.lap()
        yield from onward.release()
        metrics.chunks_forwarded.inc()
        metrics.bytes_forwarded.inc(sealed.length)
        # The next hop's disk time overlaps with this hop's own, and is then not visible.
        its_own_s = max(0.0, watch.onward_s - onward.waited_onward_s)
        self._samples.took(watch.looked_s, onward.node, its_own_s, sealed.length)
        return receipts
