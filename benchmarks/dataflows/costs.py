"""Costs of virtual time: how long links and processors take, and how many bytes go over which link (HA, Table 5).

The cores do not know of it. Sizes are those of the model, where a row has so many bytes and a number of a row so
many, whatever our encoding takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from peacefs.dataflow.core.messages import (
    Ack,
    CopyHeld,
    CopyPiece,
    Data,
    Determinants,
    DeterminantsHeld,
    EventsHappened,
    EventsKept,
    Message,
    RestartPointReached,
    StandbyInStep,
    Subscribe,
    TrimOutput,
)
from peacefs.dataflow.limits import dataflow_tick_s


class Traffic(Enum):
    #: Rows from producers to consumers.
    DATA = "data"
    #: Copies of state, and whatever else the nodes of one unit tell each other.
    REPLICATION = "replication"
    #: Numbers of rows up to which a consumer has a stream, or needs it no more.
    ACKNOWLEDGEMENT = "acknowledgement"
    #: Requests, credit, heartbeats, placements: the same with every technique.
    CONTROL = "control"


class Flow(NamedTuple):
    """Bytes of one kind from one host to another, about a stream or a unit."""

    kind: Traffic
    subject: str
    sender: str
    receiver: str


@dataclass(frozen=True)
class Costs:
    """Parameters of a model of time. By default a processor and a link cost nothing but the delay."""

    #: Seconds of processor time that an operator takes for an input row, by its name.
    processing_s: Mapping[str, float] = field(default_factory=dict)
    #: Operators whose state takes up the rows that come in, so that a copy of the state has them.
    keeps_rows: frozenset[str] = frozenset()
    #: Bits a second that each link carries, in each direction.
    bandwidth_bits_s: float = float("inf")
    delay_s: float = 0.005
    row_bytes: int = 50
    number_bytes: int = 8
    #: The time from the death of a node until the controller knows of it.
    detection_s: float = 0.25
    #: The time from when a consumer asks another producer, or another consumer asks, until rows are sent: the way
    #: of a subscription.
    redirection_s: float = 0.04
    #: So often each core is told the time.
    tick_s: float = dataflow_tick_s
    #: Bytes are counted from this time on, until the first failure.
    counted_from_s: float = 0.0

    def size(self, message: Message) -> tuple[Traffic, str, int]:
        """Return the kind of a message, the stream or unit that it is about, and its bytes."""
        match message:
            case Data():
                return Traffic.DATA, message.stream, message.batch.rows.num_rows * self.row_bytes
            case Ack():
                return Traffic.ACKNOWLEDGEMENT, message.stream, self.number_bytes
            case RestartPointReached():
                # The beginning and the position of each input, and the next number of each output.
                numbers = 2 * len(message.point.inputs) + len(message.point.outputs)
                return Traffic.REPLICATION, message.unit, numbers * self.number_bytes + len(message.data)
            case Determinants() | EventsHappened():
                return Traffic.REPLICATION, message.unit, max(len(message.events), 1) * self.number_bytes
            case TrimOutput():
                # A watermark for each input where numbers of output rows say nothing (HA 5.3).
                return Traffic.REPLICATION, message.unit, len(message.positions or (0,)) * self.number_bytes
            case CopyHeld() | DeterminantsHeld() | StandbyInStep() | EventsKept():
                return Traffic.REPLICATION, message.unit, self.number_bytes
        return Traffic.CONTROL, type(message).__name__, self.number_bytes

    def checkpoint_bytes(self, rows: int, positions: int) -> int:
        """Return the bytes of a copy of state: the rows that are new in it, and positions of queues (HA 5.1)."""
        return rows * self.row_bytes + positions * self.number_bytes


@dataclass(frozen=True)
class VirtualTimes:
    """How long things take in a seeded run, on average, and when its store is ready for checkpoints."""

    rows_every_s: float = 0.05
    #: Time of a message on its way; not used with `costs`.
    latency_s: float = 0.002
    #: Time to store or load a checkpoint.
    store_s: float = 0.1
    #: The share of checkpoints that are told to come back later, until a time.
    not_now: float = 0.0
    not_now_until_s: float = float("inf")
    #: With costs, links and processors take the time that they say, bytes are counted, and failures happen at a
    #: time. Places of units, and the most that memory held, are not noted then.
    costs: Costs | None = None


class VirtualLinks:
    """Links between hosts: each carries one message after the other, in each direction, and keeps their order."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._free_s: dict[tuple[str, str], float] = {}
        self._arrived_s: dict[tuple[str, str], float] = {}
        self.bytes: Counter[Flow] = Counter()
        #: Bytes of the pages of copies of state, by unit, which are not what copies cost here.
        self.page_bytes: Counter[str] = Counter()
        self.counting = True
        # The cost of each copy on its way, by unit and number.
        self._copy_bytes: dict[tuple[str, int], int] = {}
        #: After the first failure: when the rows of a stream up to which number had left a host.
        self.rows_left: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def send(self, now_s: float, sender: str, receiver: str, message: Message, *, told: bool) -> float:
        """Return when a message arrives. `told`: the controller says it or is told, which takes no time.

        In HA the node that takes over notices the failure itself.
        """
        kind, subject, size = self._size(now_s, message)
        self.count(now_s, Flow(kind, subject, sender, receiver), size)
        way = sender, receiver
        if told or sender == receiver:
            arrival_s = now_s
        else:
            sent_s = max(now_s, self._free_s.get(way, 0.0)) + size * 8 / self._costs.bandwidth_bits_s
            self._free_s[way] = sent_s
            if isinstance(message, Data) and not self.counting:
                self.rows_left.setdefault((sender, message.stream), []).append((message.batch.last, sent_s))
            asks = isinstance(message, Subscribe)
            arrival_s = sent_s + (self._costs.redirection_s if asks else self._costs.delay_s)
        arrival_s = max(arrival_s, self._arrived_s.get(way, 0.0))
        self._arrived_s[way] = arrival_s
        return arrival_s

    def captured(self, unit: str, number: int, size: int) -> None:
        """Learn what a copy of a unit's state costs that will be sent in pieces."""
        self._copy_bytes[unit, number] = size

    def count_pages(self, now_s: float, unit: str, size: int) -> None:
        if self.counting and now_s >= self._costs.counted_from_s:
            self.page_bytes[unit] += size

    def _size(self, now_s: float, message: Message) -> tuple[Traffic, str, int]:
        if not isinstance(message, CopyPiece):
            return self._costs.size(message)
        self.count_pages(now_s, message.unit, len(message.data))
        # Its pieces are equal, but for the last, which has the rest.
        whole = self._copy_bytes[message.unit, message.number]
        size = whole // message.pieces
        last = message.piece == message.pieces - 1
        return Traffic.REPLICATION, message.unit, whole - size * (message.pieces - 1) if last else size

    def count(self, now_s: float, flow: Flow, size: int) -> None:
        if self.counting and now_s >= self._costs.counted_from_s and flow.sender != flow.receiver:
            self.bytes[flow] += size

    def left_s(self, sender: str, stream: str, number: int) -> float:
        """Return when a row of a stream had left a host, after a failure; 0 if it did not send it."""
        left = self.rows_left.get((sender, stream), ())
        return min((at_s for last, at_s in left if last >= number), default=0.0)
