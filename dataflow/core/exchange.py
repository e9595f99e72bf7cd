"""The exchange of batches between this node and others: subscriptions, rows, credit, ends of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import Replicas

from .effects import Effect, SendMessage
from .ha_input import HAInput
from .ha_output import HAOutput
from .messages import (
    Ack,
    Credit,
    Data,
    Ended,
    Pause,
    Paused,
    Placement,
    Subscribe,
    Subscribed,
    UnitPlacement,
    unasked,
)
from .pair_reading import PairReading, replicas_of
from .query_recovery import QueryRecovery
from .replicas import awaited, place_of, slot_of, unit_of


class Participant(Protocol):
    """A unit, a source or a sink."""

    name: str
    incarnation: int
    #: The slot in its pair; 0 if it has no pair.
    slot: int

    @property
    def inputs(self) -> Mapping[str, HAInput]: ...

    @property
    def outputs(self) -> Mapping[str, HAOutput]: ...


ExchangeMessage = Subscribe | Subscribed | Data | Ended | Credit | Ack | Pause | Paused


class Exchange:
    """Moves rows and answers between the units, sources and sinks of this node and those of other nodes.

    The placement tells it where the producer of each input is. A request for rows of a unit that has not begun
    here is kept until the unit begins. The rows themselves are in the inputs and outputs. `NodeCore` and
    `EdgeCore` pass it placements, messages and broken connections, and perform the effects that it yields.
    """

    def __init__(self, recovery: QueryRecovery, *, retry_s: float) -> None:
        self._recovery = recovery
        self._network = recovery.network
        self._retry_s = retry_s
        self.participants: dict[str, Participant] = {}
        self._placement = Placement(0, {})
        # Requests for rows of units that have not begun here: the latest one per consumer and stream.
        self._early: dict[tuple[str, str], tuple[str, Subscribe]] = {}
        # For an input that may read both replicas of a producer: its side of the protocol.
        self._readings: dict[tuple[str, int, str], PairReading] = {}

    def placed(self, placement: Placement) -> None:
        self._placement = placement
        for participant in self.participants.values():
            self._retain(participant)
        there = {(each.name, each.incarnation) for each in self.participants.values()}
        self._readings = {key: each for key, each in self._readings.items() if key[:2] in there}

    def received(self, now_s: float, node: str, message: ExchangeMessage) -> Iterator[Effect]:
        match message:
            case Subscribe():
                yield from self._subscribed_to(node, message)
            case Pause():
                producer = self.participants.get(self._network.producer(message.stream))
                paused = None if producer is None else producer.outputs[message.stream].pause(message)
                if paused is not None:
                    yield SendMessage(node, paused)
            case Credit() | Ack():
                producer = self.participants.get(self._network.producer(message.stream))
                if producer is not None and isinstance(message, Credit):
                    producer.outputs[message.stream].credit(message)
                elif producer is not None and isinstance(message, Ack):
                    producer.outputs[message.stream].ack(message)
            case Subscribed() | Data() | Ended() | Paused():
                consumer = self.participants.get(unit_of(message.subscription.consumer))
                if consumer is not None and message.stream in consumer.inputs:
                    source = consumer.inputs[message.stream]
                    self._to_input(now_s, consumer, source, message, node)
                    if isinstance(message, Subscribed):
                        for ack in source.acknowledged():
                            yield from self.acknowledge(consumer, ack)

    def begun(self, participant: Participant) -> Iterator[Effect]:
        """Add a unit, and answer the requests for its rows that arrived before it."""
        self.participants[participant.name] = participant
        self._retain(participant)
        for stream in participant.outputs:
            for key in [key for key in self._early if key[0] == stream]:
                yield from self._subscribed_to(*self._early.pop(key))

    def took_over(self, producer: Participant, credit_bytes: int) -> Iterator[Effect]:
        """Let a unit that was the standby send to the consumers of its primary.

        Consumers of a pair of equals send their own requests.
        """
        outputs = [output for stream, output in producer.outputs.items() if self._is_followed(stream)]
        for output in outputs:
            for consumer in output.destinations:
                where = place_of(consumer, self._placement.units)
                if where is None:
                    continue
                node, incarnation = where
                answer = output.resume(node, unasked(consumer, incarnation, producer.incarnation), credit_bytes)
                if answer is not None:
                    yield SendMessage(node, answer)
        self._retain(producer)

    def _subscribed_to(self, node: str, message: Subscribe) -> Iterator[Effect]:
        producer = self.participants.get(self._network.producer(message.stream))
        if producer is None or producer.incarnation < message.producer_incarnation:
            self._early[message.stream, message.subscription.consumer] = (node, message)
        elif producer.incarnation == message.producer_incarnation:
            answer = producer.outputs[message.stream].subscribe(node, message)
            if answer is not None:
                self._retain(producer)
                yield SendMessage(node, answer)

    def _retain(self, producer: Participant) -> None:
        """Keep rows only for the replicas of consumers that exist."""
        pair = replicas_of(self._placement.units.get(producer.name))
        complete = len(pair) > 1 and all(each.in_step for each in pair)
        for stream, output in producer.outputs.items():
            if self._recovery.has_equals(stream):
                own = [each for each in output.destinations if slot_of(each) == producer.slot]
                output.back(own if complete else ())
            if self._recovery.reads_twice(output.destinations):
                destinations = awaited(output.destinations, self._placement.units, output.incarnations)
                output.keep_for(destinations)
                gone = set(output.destinations) - set(destinations)
                output.leave(each for each in gone if self._recovery.is_equal(each))

    def disconnected(self, now_s: float, node: str) -> None:
        """Note that the connection to a node broke, and everything in transit is lost."""
        self._early = {key: early for key, early in self._early.items() if early[0] != node}
        for participant in self.participants.values():
            for output in participant.outputs.values():
                output.disconnect(node)
            for stream, source in participant.inputs.items():
                producer = self._producer(stream)
                sender = source.sender or (producer.node if producer is not None else None)
                if self._recovery.has_equals(stream):
                    self._reading(participant, stream).disconnected(now_s, node, producer)
                elif sender == node:
                    source.disconnected()

    def subscribe(self, now_s: float) -> Iterator[Effect]:
        """Request rows from every producer that was not asked yet, has changed, or has not answered."""
        for participant in self.participants.values():
            for stream, source in participant.inputs.items():
                producer = self._producer(stream)
                if self._recovery.has_equals(stream):
                    reading = self._reading(participant, stream)
                    yield from reading.subscribe(now_s, producer, self._retry_s)
                    continue
                if producer is None or producer.node is None:
                    continue
                wanted = source.subscribe(
                    now_s,
                    producer.incarnation,
                    self._retry_s,
                    sends_unasked=producer.took_over and self._is_followed(stream),
                )
                if wanted is not None:
                    yield SendMessage(producer.node, wanted)

    def send_due(self) -> Iterator[Effect]:
        """Send rows as far as there is credit, and send credit for rows that were processed."""
        for participant in self.participants.values():
            for output in participant.outputs.values():
                for node, message in output.due():
                    yield SendMessage(node, message)
            for stream, source in participant.inputs.items():
                credit = source.credit()
                if credit is not None and self._recovery.has_equals(stream):
                    reads = self._reading(participant, stream).node
                    assert reads is not None, "only a producer that is read from wants credit"
                    yield SendMessage(reads, credit)
                elif credit is not None:
                    yield from self.to_producer(stream, [credit])

    def acknowledge(self, consumer: Participant, ack: Ack) -> Iterator[Effect]:
        """Tell the producer of a stream how far its rows have arrived."""
        if self._recovery.has_equals(ack.stream):
            wants = self._recovery.destinations(ack.stream)[ack.consumer]
            yield from self._reading(consumer, ack.stream).acknowledge(
                self._producer(ack.stream), ack, is_told_by_sending=wants is RowStage.RECEIVED
            )
        else:
            yield from self.to_producer(ack.stream, [ack])

    def to_producer(self, stream: str, messages: Iterable[Credit | Ack]) -> Iterator[Effect]:
        producer = self._producer(stream)
        if producer is not None and producer.node is not None:
            for message in messages:
                yield SendMessage(producer.node, message)

    def _is_followed(self, stream: str) -> bool:
        """Return True if the standby of a stream's producer sends without a request after it takes over."""
        producer = self._recovery.producer_of(stream)
        return producer is not None and producer.technique.replicas is Replicas.FOLLOWER

    def _producer(self, stream: str) -> UnitPlacement | None:
        return self._placement.units.get(self._network.producer(stream))

    def _reading(self, consumer: Participant, stream: str) -> PairReading:
        key = (consumer.name, consumer.incarnation, stream)
        known = self._readings.get(key)
        if known is None:
            known = self._readings[key] = PairReading(consumer.inputs[stream], consumer.slot)
        return known

    def _to_input(
        self,
        now_s: float,
        consumer: Participant,
        source: HAInput,
        message: Subscribed | Data | Ended | Paused,
        node: str,
    ) -> None:
        match message:
            case Subscribed() if self._recovery.has_equals(message.stream):
                reading = self._reading(consumer, message.stream)
                reading.subscribed(now_s, message, self._producer(message.stream))
            case Subscribed():
                source.subscribed(message, node)
            case Data():
                source.accept(message)
            case Ended():
                source.accept_end(message)
            case Paused():
                self._reading(consumer, message.stream).paused(message)
