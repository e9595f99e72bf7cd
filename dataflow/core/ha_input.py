"""The consuming edge of an HA unit: it requests rows, drops duplicates, and acknowledges."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from peacefs.dataflow.model.batches import START, Batch, Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.protocol.errors import ProtocolViolation

from .messages import Ack, Credit, Data, Ended, Subscribe, Subscribed, Subscription, is_unasked, producer_of

_PATIENCE_DOUBLED_MAX = 5


class HAInput:
    """One input of a unit or a sink: it requests rows, queues them, and grants credit for more.

    Within one numbering of the stream, rows enter the queue in order and once: duplicates are dropped, and a gap
    is a protocol violation. `processed` is the position up to which the consumer has taken rows. Units and sinks
    take rows from it; `Exchange` and `PairReading` pass it the producer's messages.
    """

    def __init__(
        self,
        stream: str,
        consumer: str,
        incarnation: int,
        position: Position = START,
        *,
        credit_bytes: int,
        attempts: int = 0,
    ) -> None:
        """Create an input. `attempts` is the maximum number of requests of earlier inputs of the incarnation."""
        self.stream = stream
        self._consumer = consumer
        self._incarnation = incarnation
        #: The unit's position in the stream. Checkpoints contain it.
        self.processed = position
        self._received = position
        self._queue: deque[tuple[int, Batch]] = deque()
        #: Bytes in the queue, after batches were cut.
        self.queued_bytes = 0
        self._credit_bytes = credit_bytes
        self._attempt = attempts
        self._asked_producer: int | None = None
        # True after a producer took over, until it sends something.
        self._waits = False
        # The latest known start of the producer; 0 before the first.
        self._latest_producer = 0
        self._asked_s = 0.0
        #: The node that sends, possibly newer than the placement. None if no node sends.
        self.sender: str | None = None
        # Attempts that this producer has not answered.
        self._unanswered = 0
        self._connected = False
        # The subscription of a producer that sends without a request.
        self._unasked: Subscription | None = None
        # Bytes that the producer has sent, and may send, in this subscription. The producer counts them, since
        # rows that were decoded or cut have a different size.
        self._sent_bytes = 0
        self._limit_bytes = 0
        self._last: int | None = None
        #: The last row that existed when the producer answered; None before the answer.
        self._replay_until: int | None = None
        #: Bytes of all rows that the unit has processed.
        self.processed_bytes = 0
        #: True once the unit was told that the stream has ended.
        self.ended = False
        #: Numbers of rows after which batches are cut, in order.
        self.cuts: Sequence[int] = ()
        #: Number of requested rows that the producer no longer had.
        self.lost = 0
        self._acknowledged: dict[RowStage, Position] = {}

    # -- the connection -----------------------------------------------------------------------------------

    def subscribe(
        self,
        now_s: float,
        producer_incarnation: int,
        retry_s: float,
        *,
        sends_unasked: bool = False,
        of_pair: bool = False,
    ) -> Subscribe | None:
        """Request rows, unless this producer was already asked and still has time to answer.

        `sends_unasked`: the producer has taken over, and sends to all previous readers of the stream without a
        request. `of_pair`: the stream can be read from two equal producers, neither of which is the later one.
        """
        same = self._asked_producer == producer_incarnation
        if self.ended or (same and self._connected):
            return None
        if producer_incarnation < self._latest_producer and not of_pair:
            # A producer that took over may send before the placement says where it is.
            return None
        # Each attempt replaces the one before, so the waits get longer. Otherwise the answer of a slow producer
        # would always be too late.
        patience_s = retry_s * 2 ** min(self._unanswered, _PATIENCE_DOUBLED_MAX)
        if same and now_s - self._asked_s < patience_s:
            return None
        self._unanswered = self._unanswered + 1 if same else 0
        self._waits = sends_unasked and 0 < self._latest_producer < producer_incarnation
        self._latest_producer = max(self._latest_producer, producer_incarnation)
        self._asked_producer, self._asked_s = producer_incarnation, now_s
        self._connected, self.sender = False, None
        if self._waits:
            return None
        self._unasked = None
        self._attempt += 1
        self._last = None
        self._sent_bytes = 0
        self._limit_bytes = self._credit_bytes - self.queued_bytes
        return Subscribe(
            self.stream, self.subscription, producer_incarnation, self._received, max(self._limit_bytes, 0)
        )

    def subscribed(self, message: Subscribed, sender: str | None = None) -> None:
        """Note that the node `sender` sends rows from now on."""
        if is_unasked(message.subscription):
            self._resumed(message, sender)
        elif message.subscription == self.subscription and not self._connected:
            self._connected, self.sender, self._unanswered = True, sender, 0
            self._received = message.after
            self.lost += message.lost
            if self._replay_until is None:
                self._replay_until = message.produced

    def _resumed(self, message: Subscribed, sender: str | None) -> None:
        """Continue with a producer that has taken over.

        It sends everything that this consumer may lack, including duplicates.
        """
        producer = producer_of(message.subscription)
        if self.ended or message.subscription.incarnation != self._incarnation or not self._latest_producer:
            return
        if producer < self._latest_producer or (producer == self._latest_producer and not self._waits):
            # This input has sent a request, and waits for the answer to that.
            return
        self._waits, self.sender = False, sender
        self._latest_producer = self._asked_producer = producer
        self._connected, self._unasked = True, message.subscription
        self._last = None
        # The producer assumes the full credit, whatever is in the queue.
        self._sent_bytes, self._limit_bytes = 0, self._credit_bytes
        if message.after.lineage != self._received.lineage:
            self._received = message.after
        self.lost += max(message.after.number - self._received.number, 0)
        if self._replay_until is None:
            self._replay_until = message.produced

    def disconnected(self) -> None:
        self._asked_producer, self._connected, self._waits, self._unanswered = None, False, False, 0
        self.sender = None

    # -- rows -----------------------------------------------------------------------------------------------

    def accept(self, message: Data) -> bool:
        """Add rows to the queue. Drop duplicates and rows of another subscription."""
        if message.subscription != self.subscription or not self._connected:
            return False
        lineage, number = self._received
        self._sent_bytes = message.sent_bytes
        if message.batch.first > number + 1:
            raise ProtocolViolation(
                f"stream {self.stream!r} goes on with row {message.batch.first} after row {number}"
            )
        fresh = message.batch.after(number)
        if fresh is None:
            return False
        self._received = Position(lineage, fresh.last)
        for part in _cut(fresh, self.cuts):
            self._queue.append((lineage, part))
            self.queued_bytes += part.bytes
        return True

    def accept_end(self, message: Ended) -> None:
        if message.subscription == self.subscription and self._connected:
            self._last = message.last

    def next(self, upto: int | None = None) -> Batch | None:
        """Return the next rows, up to number `upto`, without taking them."""
        if not self._queue:
            return None
        batch = self._queue[0][1]
        return batch if upto is None else batch.between(1, upto)

    def next_upto(self, number: int) -> Batch | None:
        """Merge all rows up to a number into one batch, for `next` and `take`. Return None if some are missing."""
        if self._received.number < number or not self._queue:
            return None
        lineage, first = self._queue[0]
        if first.last != number:
            rows = pa.Table.from_batches([batch.rows for _, batch in self._queue]).combine_chunks()
            whole = Batch(first.first, rows.to_batches()[0])
            parts = [whole.between(whole.first, number), whole.after(number)]
            self._queue = deque((lineage, part) for part in parts if part is not None)
            self.queued_bytes = sum(batch.bytes for _, batch in self._queue)
        return self._queue[0][1]

    def take(self, upto: int | None = None) -> Batch:
        """Remove the rows that `next` returns: the unit has processed them."""
        lineage, batch = self._queue.popleft()
        self.queued_bytes -= batch.bytes
        if upto is not None and (later := batch.after(upto)) is not None:
            self._queue.appendleft((lineage, later))
            self.queued_bytes += later.bytes
            taken = batch.between(1, upto)
            assert taken is not None, "there is nothing to take"
            batch = taken
        self.processed = Position(lineage, batch.last)
        self.processed_bytes += batch.bytes
        return batch

    def at_end(self) -> bool:
        """Return True if the stream has ended and all rows were taken, but the unit does not know it yet."""
        return not self.ended and self._last is not None and not self._queue

    @property
    def reads(self) -> bool:
        """True if a producer has answered, and may send more."""
        return self._connected and not self.ended

    @property
    def connected(self) -> bool:
        """True if the producer has answered and sends, or has nothing more to send."""
        return self.ended or self._connected

    @property
    def caught_up(self) -> bool:
        """Return True if all rows that existed at the first answer have been processed."""
        return self.ended or (self._replay_until is not None and self.processed.number >= self._replay_until)

    # -- what goes back ----------------------------------------------------------------------------------------

    def credit(self) -> Credit | None:
        """Return credit for the rows taken, once they are a quarter of the whole credit."""
        limit = self._sent_bytes - self.queued_bytes + self._credit_bytes
        if not self._connected or limit - self._limit_bytes < self._credit_bytes // 4:
            return None
        self._limit_bytes = limit
        return Credit(self.stream, self.subscription, limit)

    def acknowledge(self, level: RowStage, upto: Position) -> Ack:
        self._acknowledged[level] = upto
        return Ack(self.stream, self._consumer, self._incarnation, level, upto)

    def acknowledged(self) -> list[Ack]:
        """Return the last acknowledgement of each stage, for a producer that restarted or did not receive them.

        Without them, the producer may keep so many rows that it has no room for the next ones.
        """
        return [self.acknowledge(level, upto) for level, upto in self._acknowledged.items()]

    @property
    def subscription(self) -> Subscription:
        """The last attempt to read, or the subscription of a producer that sends without a request."""
        if self._unasked is not None:
            return self._unasked
        return Subscription(self._consumer, self._incarnation, self._attempt)


def _cut(batch: Batch, cuts: Sequence[int]) -> Iterator[Batch]:
    """Yield a batch in pieces, split at every cut."""
    rest: Batch | None = batch
    for number in cuts[bisect_left(cuts, batch.first) :]:
        if rest is None or number >= rest.last:
            break
        part = rest.between(rest.first, number)
        if part is not None:
            yield part
        rest = rest.after(number)
    if rest is not None:
        yield rest
