"""This datanode as a hop for whole small chunks, which it serves in batches.

    from all connections            this hop                                 next hops
    WriteChunk(last) ...      ->    check tokens and checksums, stage
                                    one send for each next hop          ->   WriteChunk(last) ...
                                    one append, one fsync
                              <-    in order of arrival                 <-   WriteAck ...

A chunk is acknowledged as soon as it is on this disk and the next hop has acknowledged it. A chunk that fails is
answered with its own error; the other chunks of the batch go on. Chunks with different next hops or disks do not
wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peacefs.client.transfer.batch_link import BatchLink, OutgoingChunk
from peacefs.datanode import metrics
from peacefs.datanode.store.chunk_store import Sealed, Staged
from peacefs.datanode.store.interface import ChunkIntake
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import ChunkError, PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Receipt, Replica, WriteAck, WriteChunk
from peacefs.protocol.tokens import ChunkWrite, Signer
from peacefs.runtime import effects as fx

from .active_streams import ActiveStream, StreamsUnderWay, report_end
from .latency_samples import LatencySamples
from .requester import Answer, SmallRequest, answer_all, failure_of
from .write_permits import Place, WritePermits, acknowledgement_wait_min


@dataclass(slots=True, eq=False)
class SmallWrite(SmallRequest):
    """A request to write a whole chunk, and its progress."""

    opening: WriteChunk
    data: bytes
    token: ChunkWrite = field(init=False)
    place: Place = field(init=False)
    staged: Staged = field(init=False)
    #: Tells the coordinator about the chunk's progress; None if the chunk was not granted in advance.
    stream: ActiveStream | None = field(default=None, init=False)
    sealed: Sealed | None = field(default=None, init=False)


class BatchHop:
    """Receives whole small chunks in batches, for `SmallRequests`. `PipelineHop` receives all other chunks."""

    def __init__(
        self,
        signer: Signer,
        store: ChunkIntake,
        changes: ChangeSink,
        streams: StreamsUnderWay,
        samples: LatencySamples,
        permits: WritePermits,
        clock: Callable[[], float],
        hop_timeout_s: float,
    ) -> None:
        self._signer = signer
        self._store = store
        self._changes = changes
        self._streams = streams
        self._samples = samples
        self._permits = permits
        self._clock = clock
        self._hop_timeout_s = hop_timeout_s
        self._node = streams.node
        #: Next hops that answer in order, without tags. Send them single chunks, no batches.
        self._ordered_hops: set[NodeId] = set()

    def admit(
        self, writes: Sequence[SmallWrite]
    ) -> tuple[list[list[SmallWrite]], list[tuple[SmallWrite, PeacefsError]]]:
        """Check and stage chunks. Return groups to receive independently, and errors of refused chunks."""
        groups: dict[object, list[SmallWrite]] = {}
        refused: list[tuple[SmallWrite, PeacefsError]] = []
        now_s = self._clock()
        for write in writes:
            try:
                self._admit(write, now_s)
            except PeacefsError as fault:
                refused.append((write, fault))
                continue
            groups.setdefault(self._group_of(write), []).append(write)
        return list(groups.values()), refused

    def _admit(self, write: SmallWrite, now_s: float) -> None:
        opening = write.opening
        token = write.token = self._permits.check(opening)
        place = write.place = self._permits.place(token)
        stream = self._streams.begin(token, now_s) if token.grant else None
        try:
            write.staged = self._store.take(opening.chunk, opening.version, opening.sums, write.data)
        except PeacefsError as fault:
            if stream is not None:
                self._streams.end(stream)
            self._permits.ascribe(fault, place)
            raise
        write.stream = stream

    def _group_of(self, write: SmallWrite) -> object:
        place = write.place
        if not place.route:
            return write.staged.directory
        successor = place.route[0]
        if successor.node in self._ordered_hops:
            return write
        return write.staged.directory, successor

    def receive(self, writes: Sequence[SmallWrite]) -> fx.Steps[None]:
        """Forward, store and acknowledge one group of admitted chunks, which share a disk and a next hop."""
        place = writes[0].place
        began_s = self._clock()
        link: BatchLink | None = None
        outgoing: dict[OutgoingChunk, SmallWrite] = {}
        if place.route:
            link = BatchLink(place.route[0])
            outgoing = {_outgoing(write): write for write in writes}
            try:
                yield from link.send(list(outgoing))
            except PeacefsError as fault:
                for write in writes:
                    yield from self._store.discard(write.staged)
                yield from self.fail([(write, fault) for write in writes])
                return
        sent_s = self._clock()
        outcomes = yield from self._store.seal_many([write.staged for write in writes])
        yield from self.fail(self._record(writes, outcomes, sent_s))
        if link is None:
            yield from self._acknowledge([(write, [], 0.0) for write in writes if write.sealed is not None])
        else:
            yield from self._compare(link, outgoing, began_s, sent_s)

    def _record(
        self, writes: Sequence[SmallWrite], outcomes: Sequence[Sealed | ChunkError], sent_s: float
    ) -> list[tuple[SmallWrite, PeacefsError]]:
        """Count and report the chunks that were sealed. Return the others with their errors."""
        now_s = self._clock()
        failed: list[tuple[SmallWrite, PeacefsError]] = []
        total_bytes = 0
        for write, outcome in zip(writes, outcomes, strict=True):
            if not isinstance(outcome, Sealed):
                self._permits.ascribe(outcome, write.place)
                failed.append((write, outcome))
                continue
            write.sealed = outcome
            total_bytes += outcome.length
            replica = Replica(write.opening.chunk, write.opening.version, outcome.length)
            self._changes.added(replica)
            # If the disk has failed meanwhile, its replicas were reported as removed before this one was added.
            if self._store.find(replica.chunk) is None:
                self._changes.removed(replica)
        if count := len(writes) - len(failed):
            metrics.seal_seconds.observe(now_s - sent_s)
            metrics.chunks_written.inc(count)
            metrics.bytes_written.inc(total_bytes)
            self._samples.took(now_s, self._node, now_s - sent_s, chunks=count)
        return failed

    def _compare(
        self, link: BatchLink, writes: dict[OutgoingChunk, SmallWrite], began_s: float, sent_s: float
    ) -> fx.Steps[None]:
        """Acknowledge each chunk once all later hops have acknowledged the same length and checksum."""
        successor = next(iter(writes.values())).place.route[0].node
        now_s = sealed_s = self._clock()
        waits_until_s = sealed_s + self._hop_timeout_s * acknowledgement_wait_min
        while not link.is_over():
            answers = yield from link.answers(now_s, sent_s, waits_until_s)
            now_s = self._clock()
            # This hop did not receive answers while its own disk worked, so do not count that time.
            waited_s = now_s - sealed_s + sent_s - began_s
            complete: list[tuple[SmallWrite, list[Receipt], float]] = []
            failed: list[tuple[SmallWrite, PeacefsError]] = []
            total_bytes, its_own_s = 0, 0.0
            for outgoing, answer in answers:
                write = writes[outgoing]
                if write.sealed is None:
                    continue
                if not isinstance(answer, WriteAck):
                    failed.append((write, answer))
                    continue
                complete.append((write, answer.receipts, waited_s))
                total_bytes += write.sealed.length
                its_own_s += max(0.0, waited_s - answer.waited_s)
            if link.is_over():
                # Release the connection before answering, so that the writer's next batch can use it.
                yield from link.end()
            if complete:
                metrics.chunks_forwarded.inc(len(complete))
                metrics.bytes_forwarded.inc(total_bytes)
                count = len(complete)
                self._samples.took(now_s, successor, its_own_s / count, chunks=count)
            yield from self._acknowledge(complete)
            yield from self.fail(failed)
        if link.answers_in_order:
            self._ordered_hops.add(successor)
        else:
            self._ordered_hops.discard(successor)

    def _acknowledge(self, complete: Sequence[tuple[SmallWrite, list[Receipt], float]]) -> fx.Steps[None]:
        if not complete:
            return
        answers: list[Answer] = []
        for write, receipts, waited_s in complete:
            opening, sealed = write.opening, write.sealed
            assert sealed is not None
            length, checksum = sealed
            own = self._signer.receipt(self._node, opening.chunk, opening.version, length, checksum)
            ack = WriteAck(opening.chunk, opening.version, length, checksum, [own, *receipts], waited_s)
            answers.append((write, ack, b""))
        yield from self._answer([write for write, _receipts, _waited_s in complete], answers)

    def fail(self, failed: Sequence[tuple[SmallWrite, PeacefsError]]) -> fx.Steps[None]:
        """Answer chunks with their errors."""
        if not failed:
            return
        answers: list[Answer] = []
        for write, fault in failed:
            metrics.pipeline_failures.labels(fault.code).inc()
            write.sealed = None
            answers.append((write, failure_of(fault), b""))
        yield from self._answer([write for write, _fault in failed], answers)

    def _answer(self, writes: Sequence[SmallWrite], answers: Sequence[Answer]) -> fx.Steps[None]:
        yield from answer_all(answers)
        for write in writes:
            if write.stream is not None:
                self._streams.end(write.stream)
                if write.token.pipeline[0].node == self._node:
                    length = None if write.sealed is None else write.sealed.length
                    yield from fx.spawn(report_end(write.opening, length))


def _outgoing(write: SmallWrite) -> OutgoingChunk:
    staged = write.staged
    nodes = [hop.node for hop in write.place.route]
    timeout_s = write.place.link_timeout_s
    return OutgoingChunk(write.opening, write.data, staged.length, staged.checksum, nodes, timeout_s)
