"""Costs in virtual time: the durations of sends and processing, and the bytes on each link (HA, Table 5).

The cores do not know these costs. Sizes are those of the paper's model, in which each row and each row number has
a fixed size, whatever our encoding needs.
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
    #: Copies of state, and other messages between the nodes of one unit.
    REPLICATION = "replication"
    #: Row numbers up to which a consumer has received a stream, or no longer needs it.
    ACKNOWLEDGEMENT = "acknowledgement"
    #: Requests, credit, heartbeats, placements: the same for every technique.
    CONTROL = "control"


class Flow(NamedTuple):
    """The flow of one kind of message from one host to another, about one stream or unit."""

    kind: Traffic
    subject: str
    sender: str
    receiver: str


@dataclass(frozen=True)
class Costs:
    """Parameters of a model of time. By default, processing takes no time, and a link only adds its delay."""

    #: Seconds of processor time that an operator needs per input row, by the operator's name.
    processing_s: Mapping[str, float] = field(default_factory=dict)
    #: Operators whose state contains the input rows, so that a copy of the state contains them, too.
    keeps_rows: frozenset[str] = frozenset()
    #: Bits per second of each link, in each direction.
    bandwidth_bits_s: float = float("inf")
    delay_s: float = 0.005
    row_bytes: int = 50
    number_bytes: int = 8
    #: The time from the death of a node until the controller detects it.
    detection_s: float = 0.25
    #: The time that a subscription takes from a consumer to another producer, including when a new consumer
    #: subscribes.
    redirection_s: float = 0.04
    #: Interval of the ticks of each core.
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
                # One watermark per input, if the numbers of output rows cannot be used (HA 5.3).
                return Traffic.REPLICATION, message.unit, len(message.positions or (0,)) * self.number_bytes
            case CopyHeld() | DeterminantsHeld() | StandbyInStep() | EventsKept():
                return Traffic.REPLICATION, message.unit, self.number_bytes
        return Traffic.CONTROL, type(message).__name__, self.number_bytes

    def checkpoint_bytes(self, rows: int, positions: int) -> int:
        """Return the bytes of a copy of state: its new rows, and the positions of queues (HA 5.1)."""
        return rows * self.row_bytes + positions * self.number_bytes


@dataclass(frozen=True)
class VirtualTimes:
    """Average durations in a seeded run, and how often the store postpones checkpoints."""

    rows_every_s: float = 0.05
    #: Duration of a message; not used with `costs`.
    latency_s: float = 0.002
    #: Time to store or load a checkpoint.
    store_s: float = 0.1
    #: The share of checkpoints that are cancelled with "not now", until the given time.
    not_now: float = 0.0
    not_now_until_s: float = float("inf")
    #: With costs, links and processors take time, bytes are counted, and failures happen at times instead of
    #: steps. The outcome's places of units and maxima of memory are not recorded then.
    costs: Costs | None = None


class VirtualLinks:
    """Links between hosts. Each direction carries one message at a time, in order."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._free_s: dict[tuple[str, str], float] = {}
        self._arrived_s: dict[tuple[str, str], float] = {}
        self.bytes: Counter[Flow] = Counter()
        #: Bytes of the pages in copies of state, by unit. The model's costs of copies do not include them.
        self.page_bytes: Counter[str] = Counter()
        self.counting = True
        # The cost of each copy under way, by unit and copy number.
        self._copy_bytes: dict[tuple[str, int], int] = {}
        #: After the first failure: by host and stream, pairs of a row number and the time when rows up to it had
        #: left the host.
        self.rows_left: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def send(self, now_s: float, sender: str, receiver: str, message: Message, *, told: bool) -> float:
        """Return when a message arrives. With `told`, the controller sends or receives it, which takes no time.

        The controller is free because in HA the node that takes over detects the failure itself.
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
        """Record the cost of a copy of a unit's state. The copy is then sent in pieces."""
        self._copy_bytes[unit, number] = size

    def count_pages(self, now_s: float, unit: str, size: int) -> None:
        if self.counting and now_s >= self._costs.counted_from_s:
            self.page_bytes[unit] += size

    def _size(self, now_s: float, message: Message) -> tuple[Traffic, str, int]:
        if not isinstance(message, CopyPiece):
            return self._costs.size(message)
        self.count_pages(now_s, message.unit, len(message.data))
        # All pieces have the same size, except the last, which has the rest.
        whole = self._copy_bytes[message.unit, message.number]
        size = whole // message.pieces
        last = message.piece == message.pieces - 1
        return Traffic.REPLICATION, message.unit, whole - size * (message.pieces - 1) if last else size

    def count(self, now_s: float, flow: Flow, size: int) -> None:
        if self.counting and now_s >= self._costs.counted_from_s and flow.sender != flow.receiver:
            self.bytes[flow] += size

    def left_s(self, sender: str, stream: str, number: int) -> float:
        """Return when a row of a stream left a host after a failure; 0 if the host did not send it."""
        left = self.rows_left.get((sender, stream), ())
        return min((at_s for last, at_s in left if last >= number), default=0.0)
