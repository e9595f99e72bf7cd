"""The sending end of one link of a pipeline: from the writer to the head, or from a hop to its successor.

Every error of the link names a culprit: the datanode that the successor named, or the successor itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import (
    ChecksumMismatch,
    PeacefsError,
    PeerError,
    PeerTimeout,
    ProtocolViolation,
    from_wire,
)
from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.limits import last_word_timeout_s
from peacefs.protocol.messages import Failure, Hop, Message, Receipt, WriteAck, WriteChunk
from peacefs.runtime import effects as fx

# Each hop has a shorter timeout than the one before it, so that the hop nearest to a fault reports it.
hop_timeout_step_s: Final = 2.0


def link_timeout_s(position: int, nodes: int, hop_timeout_s: float) -> float:
    """Return how long the participant at `position` waits for its successor; the writer is -1, the head 0.

    Timeouts shrink along the pipeline, so that the participant nearest to a fault reports it.
    """
    step_s = min(hop_timeout_step_s, hop_timeout_s / (nodes + 1))
    return hop_timeout_s - step_s * (position + 1)


class NextHop:
    """Sends one chunk to `route[0]`, which forwards it along `route`. After a fault the owner calls `abandon`."""

    def __init__(self, route: Sequence[Hop], timeout_s: float) -> None:
        self._hop = route[0]
        self._onward = list(route[1:])
        self._timeout_s = timeout_s
        self._connection: fx.Connection | None = None
        #: The time that this hop waited for its successors; known once it has acknowledged the chunk.
        self.waited_onward_s = 0.0

    @property
    def node(self) -> NodeId:
        return self._hop.node

    def connect(self) -> fx.Steps[None]:
        try:
            self._connection = yield from fx.connect(self._hop.address, self._hop.node)
        except PeerError as fault:
            self._blame(fault)
            raise

    def open(
        self, token: str, chunk: ChunkId, version: Version, sums: bytes, data: Bytes, *, last: bool
    ) -> fx.Steps[None]:
        yield from self.send(WriteChunk(token, chunk, version, sums, last), data)

    def send(self, message: Message, payload: Bytes = b"") -> fx.Steps[None]:
        assert self._connection is not None
        try:
            yield from fx.send(self._connection, message, payload, timeout_s=self._timeout_s)
        except PeerError as fault:
            # A hop that hung up may have sent its reason. A hop that accepts no bytes has sent nothing.
            failure = None if isinstance(fault, PeerTimeout) else (yield from last_word(self._connection))
            if failure is not None:
                raise failure from None
            self._blame(fault)
            raise

    def acknowledgement(
        self, chunk: ChunkId, version: Version, length: int, checksum: int, *, timeout_s: float | None = None
    ) -> fx.Steps[list[Receipt]]:
        """Return the receipts of all hops, once exactly this chunk is on their disks."""
        assert self._connection is not None
        try:
            frame = yield from fx.receive(self._connection, timeout_s=timeout_s or self._timeout_s)
        except PeerError as fault:
            self._blame(fault)
            raise
        ack = checked_acknowledgement(
            frame.message,
            self.node,
            (chunk, version, length, checksum),
            [self.node, *(hop.node for hop in self._onward)],
        )
        self.waited_onward_s = ack.waited_s
        return ack.receipts

    def release(self) -> fx.Steps[None]:
        """Return the connection to the pool, after an acknowledgement."""
        assert self._connection is not None
        connection, self._connection = self._connection, None
        yield from fx.release(connection)

    def abandon(self) -> fx.Steps[None]:
        """Hang up; the hops then drop their part of the chunk."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.close(connection)

    def _blame(self, fault: PeacefsError) -> None:
        fault.culprit = fault.culprit or self.node


def checked_acknowledgement(
    answer: Message, node: NodeId, expected: tuple[ChunkId, Version, int, int], nodes: Sequence[NodeId]
) -> WriteAck:
    """Return the answer of `node` if it acknowledges the expected chunk, version, length and checksum.

    The answer must have a receipt from each of `nodes`. Raises ChecksumMismatch, ProtocolViolation, or the error
    in a Failure.
    """
    if isinstance(answer, Failure):
        raise from_wire(answer.code, answer.message, answer.culprit)
    if not isinstance(answer, WriteAck):
        raise ProtocolViolation(f"{node} answered a chunk with {type(answer).__name__}", culprit=node)
    if (answer.chunk, answer.version, answer.length, answer.checksum) != expected:
        raise ChecksumMismatch(f"{node} acknowledged something else than it was sent", culprit=node)
    if [receipt.node for receipt in answer.receipts] != list(nodes):
        raise ProtocolViolation(f"{node} did not account for every hop after it", culprit=node)
    return answer


def last_word(connection: fx.Connection) -> fx.Steps[PeacefsError | None]:
    """Return the error that a hop sent before it closed the connection, or None."""
    try:
        message = (yield from fx.receive(connection, timeout_s=last_word_timeout_s)).message
    except PeerError:
        return None
    return from_wire(message.code, message.message, message.culprit) if isinstance(message, Failure) else None
