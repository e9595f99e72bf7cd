"""Sends several small chunks to one datanode at once, and receives an acknowledgement for each.

Each chunk is a frame with a tag, and its answer has the same tag. So answers may come in any order, and a chunk
that waits for a slow datanode does not delay the others. Datanodes of release 0.2.0 and older answer without tags,
in order: an answer without a tag is for the oldest unanswered chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeacefsError, PeerError, PeerTimeout, ProtocolViolation
from peacefs.protocol.frames import Frame
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Hop, WriteAck, WriteChunk
from peacefs.runtime import effects as fx

from .next_hop import checked_acknowledgement, last_word


@dataclass(slots=True, eq=False)
class OutgoingChunk:
    """A whole small chunk, and what its acknowledgement must say. `nodes` are the datanodes that must hold it."""

    opening: WriteChunk
    data: Bytes
    length: int
    checksum: int
    nodes: Sequence[NodeId]
    #: How long the datanode may take to accept the chunk, and how long to acknowledge it.
    timeout_s: float


#: A chunk, and its acknowledgement or error.
Answered = tuple[OutgoingChunk, WriteAck | PeacefsError]


class BatchLink:
    """One connection for one batch. After `send`, call `answers` until `is_over` is True, then `end`.

    Each chunk has its own timeout, because the chunks of a batch may be at different positions of their pipelines.
    """

    def __init__(self, hop: Hop) -> None:
        self._hop = hop
        self._connection: fx.Connection | None = None
        #: The unanswered chunks by tag, oldest first, and the shortest of their timeouts.
        self._pending: dict[int, OutgoingChunk] = {}
        self._shortest_s = 0.0
        #: True if some chunk was given up. Its answer may still come.
        self._gave_up = False
        #: True if the peer's last answer had no tag: it serves the chunks of a batch one at a time.
        self.answers_in_order = False

    def is_over(self) -> bool:
        return not self._pending

    def send(self, chunks: Sequence[OutgoingChunk]) -> fx.Steps[None]:
        """Connect and send all chunks.

        Raises PeacefsError, with the datanode to blame as its culprit, if any chunk was not sent. Then all have
        failed.
        """
        self._pending = dict(enumerate(chunks, 1))
        self._shortest_s = min(chunk.timeout_s for chunk in chunks)
        frames = [Frame(chunk.opening, chunk.data, tag) for tag, chunk in self._pending.items()]
        try:
            self._connection = yield from fx.connect(self._hop.address, self._hop.node)
            yield from fx.send_frames(self._connection, frames, timeout_s=self._shortest_s)
        except PeerError as fault:
            failure = None
            if self._connection is not None and not isinstance(fault, PeerTimeout):
                failure = yield from last_word(self._connection)
            self._pending.clear()
            yield from self._hang_up()
            failure = failure or fault
            failure.culprit = failure.culprit or self._hop.node
            raise failure from None

    def answers(self, now_s: float, sent_s: float, waits_until_s: float) -> fx.Steps[list[Answered]]:
        """Return the next answers. If the connection fails, return its error for every unanswered chunk.

        A chunk whose answer does not come within its timeout after `sent_s`, nor before `waits_until_s`, fails
        alone, with PeerTimeout.
        """
        assert self._connection is not None
        deadline_s = max(sent_s + self._shortest_s, waits_until_s)
        try:
            frames = yield from fx.receive_frames(self._connection, timeout_s=max(deadline_s - now_s, 0.0))
        except PeacefsError as fault:
            fault.culprit = fault.culprit or self._hop.node
            failed = list(self._pending)
            if isinstance(fault, PeerTimeout) and not self.answers_in_order:
                failed = [tag for tag in failed if sent_s + self._pending[tag].timeout_s <= deadline_s]
            return (yield from self._give_up(failed, fault))
        answered: list[Answered] = []
        for frame in frames:
            if self._gave_up and not frame.tag:
                # It is not known which chunk this answers.
                late = ProtocolViolation(f"{self._hop.node} answered too late", culprit=self._hop.node)
                return answered + (yield from self._give_up(list(self._pending), late))
            self.answers_in_order = not frame.tag
            tag = frame.tag or next(iter(self._pending), 0)
            chunk = self._pending.pop(tag, None)
            if chunk is not None:
                answered.append((chunk, self._checked(chunk, frame)))
        return answered

    def _checked(self, chunk: OutgoingChunk, frame: Frame) -> WriteAck | PeacefsError:
        opening = chunk.opening
        try:
            return checked_acknowledgement(
                frame.message,
                self._hop.node,
                (opening.chunk, opening.version, chunk.length, chunk.checksum),
                chunk.nodes,
            )
        except PeacefsError as fault:
            return fault

    def _give_up(self, tags: Sequence[int], fault: PeacefsError) -> fx.Steps[list[Answered]]:
        self._gave_up = True
        failed: list[Answered] = [(self._pending.pop(tag), fault) for tag in tags]
        if self._pending:
            self._shortest_s = min(chunk.timeout_s for chunk in self._pending.values())
        else:
            yield from self._hang_up()
        return failed

    def end(self) -> fx.Steps[None]:
        """Return the connection to the pool. Close it instead if some chunks are unanswered."""
        if self._connection is not None and self.is_over() and not self._gave_up:
            connection, self._connection = self._connection, None
            yield from fx.release(connection)
        else:
            yield from self._hang_up()

    def _hang_up(self) -> fx.Steps[None]:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            yield from fx.close(connection)
