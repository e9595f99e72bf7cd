"""The producing edge of an HA unit: it numbers rows, keeps them, and sends them to subscribers.

All logging and replay is here; operators know nothing of it (SGuard 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from peacefs.dataflow.model.batches import OLDEST, Batch, Position, pieces
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.unit_state.interface import NumberedRows

from .messages import Ack, Credit, Data, Ended, Pause, Paused, Subscribe, Subscribed, Subscription
from .output_buffer import PRODUCED, Mark, MarkedRanges, OutputBuffer


@dataclass(frozen=True)
class OutputContents:
    """An output without its rows, as stored in a checkpoint."""

    lineage: int
    ended: bool
    marks: MarkedRanges


@dataclass(frozen=True)
class OutputRules:
    """How a technique wants the rows of an output to be kept."""

    #: Put each row into the output's log when it is emitted. Otherwise only between `keep_rows` and `drop_rows`.
    logs_all: bool = True
    #: Keep rows for the states of consumers long after they were sent. These rows do not block the unit.
    retains_for_states: bool = False


@dataclass
class _Connection:
    node: str
    subscription: Subscription
    limit_bytes: int
    sent_bytes: int = 0
    end_sent: bool = False


class HAOutput:
    """One output of a unit or a source: it numbers rows, keeps them in a buffer, and sends them.

    Rows go only to the latest start of a consumer and its latest subscription, in order and as long as there is
    credit. While output is held, rows above the released number wait. Units and sources emit rows into it;
    `Exchange` passes it the messages of consumers and sends what is `due`.
    """

    def __init__(
        self,
        stream: str,
        destinations: Mapping[str, RowStage],
        *,
        rules: OutputRules | None = None,
        lineage: int = 0,
        log: NumberedRows | None = None,
        forgot_rows: bool = False,
    ) -> None:
        """`destinations`: a row is dropped once each of them has it at its stage.

        A destination with stage SENT does not delay this while it is away. `log`: a second place for rows, so that
        checkpoints of the unit contain them. `forgot_rows`: True if the unit began again, and consumers may depend
        on rows that existed before its first one.
        """
        rules = rules or OutputRules()
        self.stream = stream
        self.lineage = lineage
        self.ended = False
        self._stages = dict(destinations)
        self._destinations = tuple(destinations)
        self.buffer = OutputBuffer(self._marks(self._destinations))
        self._log = log
        self._logs_all = rules.logs_all
        self._retains_for_states = rules.retains_for_states
        self._forgot_rows = forgot_rows
        self._connections: dict[str, _Connection] = {}
        # The latest start of each consumer. Earlier starts are ignored.
        self._incarnations: dict[str, int] = {}
        # Rows above this number, and the end, wait until a standby can repeat the events that they depend on.
        # None: nothing waits.
        self._released: int | None = None
        self._end_released = True
        # Consumers whose rows another replica keeps until they have arrived. For these consumers, sending a row
        # counts as received.
        self._backed: frozenset[str] = frozenset()

    # -- the unit -----------------------------------------------------------------------------------

    def emit(self, rows: pa.RecordBatch) -> None:
        """Assign numbers to rows, and keep them for consumers. Raises OperatorFailed if a row cannot be sent."""
        assert not self.ended
        for piece in pieces(self.stream, Batch(self.buffer.produced + 1, rows)):
            self._emit(piece)

    def _emit(self, batch: Batch) -> None:
        if self._log is not None and self._logs_all:
            self._log.append(batch.first, batch.rows)
        for destination in self._incarnations.keys() - self._connections.keys():
            if self._stages[destination] is RowStage.SENT:
                self.buffer.ack(batch.first, batch.last, Mark(RowStage.SENT, destination))
        self.buffer.put(batch)

    def end(self) -> None:
        self.ended = True

    def hold(self) -> None:
        """Hold back further output until it is released."""
        self._released, self._end_released = self.buffer.produced, self.ended

    def release(self, number: int, end: bool) -> None:
        """Release rows up to a number and, if `end`, the end of the stream."""
        if self._released is not None:
            self._released = max(self._released, number)
            self._end_released = self._end_released or end

    def release_all(self) -> None:
        self._released, self._end_released = None, True

    @property
    def destinations(self) -> tuple[str, ...]:
        return self._destinations

    @property
    def incarnations(self) -> Mapping[str, int]:
        """The latest start of each consumer that has requested rows."""
        return self._incarnations

    def trim(self, upto: int) -> None:
        """Note that all destinations have the rows up to a number. These rows may not exist here yet."""
        for destination in self._destinations:
            self.buffer.ack(1, upto, Mark(RowStage.RECEIVED, destination))

    def keep_rows(self) -> None:
        """Add all held rows to the log, so that a copy of the state contains them. `drop_rows` removes them."""
        assert self._log is not None
        for batch in self.buffer.held():
            self._log.append(batch.first, batch.rows)

    def drop_rows(self) -> None:
        assert self._log is not None
        self._log.drop_before(self.buffer.produced + 1)

    def begin_after(self, number: int) -> None:
        """Continue after a number. An earlier start of the unit made the rows up to it."""
        self.buffer.begin_after(number)

    def reached(self, level: RowStage) -> int:
        """Return the number up to which all consumers have acknowledged at `level` or a later one."""
        return min(self.buffer.reached(min(level, stage), each) for each, stage in self._stages.items())

    def has_room(self, backlog_bytes_max: int) -> bool:
        """Return True if the unit may emit more, because consumers are not too far behind."""
        if self.buffer.held_bytes < backlog_bytes_max:
            return True
        return self._retains_for_states and self.buffer.unreceived_bytes(self._destinations) < backlog_bytes_max

    def contents(self) -> OutputContents:
        return OutputContents(self.lineage, self.ended, self.buffer.marks())

    def load(self, contents: OutputContents) -> None:
        self.ended = contents.ended
        self.buffer.load(contents.marks, [Batch(first, rows) for first, rows in self._log or ()])
        if not self._logs_all:
            self.drop_rows()

    # -- consumers ---------------------------------------------------------------------------------------

    def subscribe(self, node: str, message: Subscribe) -> Subscribed | None:
        """Connect a consumer. Return None if a later start of it, or a later attempt, is known."""
        consumer, incarnation, _ = subscription = message.subscription
        known = self._connections.get(consumer)
        if consumer not in self._destinations or incarnation < self._incarnations.get(consumer, 0):
            return None
        if known is not None and known.subscription >= subscription:
            return None
        self._incarnations[consumer] = incarnation
        begin = self.buffer.first_held - 1
        after = message.after.number if message.after.lineage == self.lineage else begin
        lost = max(begin - after, 0)
        begins_again = message.after == OLDEST and incarnation > 1
        if begins_again and self._forgot_rows and not self.buffer.reached(RowStage.SAFE, consumer):
            # The earlier start of the consumer may have depended on dropped rows.
            lost += 1
        after = max(after, begin)
        # Acknowledge the numbers that the consumer already has. Some of them may not be produced yet (they
        # dangle): their rows will not be sent.
        received = Mark(RowStage.RECEIVED, consumer)
        self.buffer.forget(received, after)
        self.buffer.ack(1, after, received)
        self.buffer.reset(consumer)
        self._connections[consumer] = _Connection(node, subscription, message.credit_bytes)
        return Subscribed(self.stream, subscription, Position(self.lineage, after), lost, self.buffer.produced)

    def back(self, consumers: Iterable[str]) -> None:
        """Set the consumers that acknowledge to another replica: their rows are dropped once they are sent."""
        self._backed = frozenset(each for each in consumers if self._stages[each] is RowStage.RECEIVED)

    def keep_for(self, destinations: Iterable[str]) -> None:
        """Keep rows for these destinations only: the others do not exist."""
        self.buffer.retain_until(self._marks(destinations))

    def _marks(self, destinations: Iterable[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(self._stages[each], each) for each in destinations)})

    def pause(self, message: Pause) -> Paused | None:
        """Stop sending to a consumer. The answer arrives after everything that was sent."""
        connection = self._connections.get(message.subscription.consumer)
        if connection is None or connection.subscription != message.subscription:
            return None
        del self._connections[message.subscription.consumer]
        return Paused(self.stream, message.subscription)

    def leave(self, consumers: Iterable[str]) -> None:
        """Stop sending to consumers that are considered dead, since their rows may have been dropped."""
        for consumer in consumers:
            self._connections.pop(consumer, None)

    def resume(self, node: str, subscription: Subscription, credit_bytes: int) -> Subscribed | None:
        """Connect a consumer that read the stream from the primary, without a request from it (HA 5.3).

        It is sent all rows that consumers are not known to have, and it drops duplicates.
        """
        consumer, incarnation, _ = subscription
        known = self._connections.get(consumer)
        if incarnation < self._incarnations.get(consumer, 0):
            return None
        if known is not None and known.subscription >= subscription:
            return None
        self._incarnations[consumer] = incarnation
        self.buffer.reset(consumer)
        self._connections[consumer] = _Connection(node, subscription, credit_bytes)
        after = Position(self.lineage, self.buffer.first_held - 1)
        return Subscribed(self.stream, subscription, after, 0, self.buffer.produced)

    def disconnect(self, node: str) -> None:
        for consumer in [name for name, each in self._connections.items() if each.node == node]:
            del self._connections[consumer]

    def credit(self, message: Credit) -> None:
        connection = self._connections.get(message.subscription.consumer)
        if connection is not None and connection.subscription == message.subscription:
            connection.limit_bytes = max(connection.limit_bytes, message.limit_bytes)

    def ack(self, message: Ack) -> None:
        if message.upto.lineage != self.lineage or message.incarnation < self._incarnations.get(
            message.consumer, 0
        ):
            return
        if message.consumer in self._destinations:
            if message.incarnation > self._incarnations.get(message.consumer, message.incarnation):
                # The consumer has restarted elsewhere, and lacks rows that its earlier start had.
                for level in (RowStage.RECEIVED, RowStage.SAFE):
                    self.buffer.forget(Mark(level, message.consumer), message.upto.number)
            self._incarnations[message.consumer] = message.incarnation
            # SAFE implies RECEIVED.
            for level in {RowStage.RECEIVED, message.level}:
                self.buffer.ack(1, message.upto.number, Mark(level, message.consumer))
            if self._log is not None and self._logs_all:
                self._log.drop_before(self.buffer.first_held)

    @property
    def sent(self) -> int:
        """The number up to which all connected consumers were sent rows; 0 if none is connected."""
        unsent = [self.buffer.peek(consumer) for consumer in self._connections]
        return min((self.buffer.produced if batch is None else batch.first - 1 for batch in unsent), default=0)

    def due(self) -> Iterator[tuple[str, Data | Ended]]:
        """Yield each message that can be sent now, with its node."""
        for consumer, connection in self._connections.items():
            while connection.sent_bytes < connection.limit_bytes:
                batch = self.buffer.peek(consumer)
                if batch is None or (self._released is not None and batch.last > self._released):
                    break
                self.buffer.advance(consumer, batch)
                level = RowStage.RECEIVED if consumer in self._backed else RowStage.SENT
                self.buffer.ack(batch.first, batch.last, Mark(level, consumer))
                connection.sent_bytes += batch.bytes
                yield connection.node, Data(self.stream, connection.subscription, batch, connection.sent_bytes)
            ended = self.ended and self._end_released and not connection.end_sent
            if ended and self.buffer.peek(consumer) is None:
                connection.end_sent = True
                yield connection.node, Ended(self.stream, connection.subscription, self.buffer.produced)


def too_much_retained(stream: str, bytes_max: int) -> str:
    """Return the error message for a query whose states depend on more rows than may be kept."""
    return (
        f"the rows of {stream!r} that states of its consumers depend on are more than Bounds.retained_bytes_max, "
        f"{bytes_max:,} bytes: raise it, make windows smaller, or use SGuard"
    )
