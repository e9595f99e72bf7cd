"""Messages of nodes and the controller. Connections keep their order; a broken one loses those in transit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from peacefs.dataflow.limits import dataflow_checkpoints_per_start_max
from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.model.row_stage import RowStage

from .determinants import UnitEvent
from .restart_point import RestartPoint

CONTROLLER = "controller"


class Subscription(NamedTuple):
    """One attempt of one start of a consumer to read a stream. Later attempts compare greater."""

    consumer: str
    incarnation: int
    attempt: int


def unasked(consumer: str, incarnation: int, producer: int) -> Subscription:
    """Return the subscription that a producer creates for a consumer when it takes over.

    All other subscriptions of this start are later.
    """
    return Subscription(consumer, incarnation, -producer)


def is_unasked(subscription: Subscription) -> bool:
    return subscription.attempt < 0


def producer_of(subscription: Subscription) -> int:
    """Return the incarnation of the producer that created a subscription."""
    return -subscription.attempt


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask the producer of a stream for the rows after a position."""

    stream: str
    subscription: Subscription
    producer_incarnation: int
    after: Position
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Say where the rows that will be sent begin. `lost` requested rows no longer exist."""

    stream: str
    subscription: Subscription
    after: Position
    lost: int
    #: The last row that the producer has now.
    produced: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask the producer to send no more rows."""

    stream: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Paused:
    """Confirm, after all rows that were sent, that no more follow."""

    stream: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Data:
    """Rows, and the bytes sent so far in this subscription, as the producer counts them for credit."""

    stream: str
    subscription: Subscription
    batch: Batch
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """Say that row `last` is the last of the stream."""

    stream: str
    subscription: Subscription
    last: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow the producer to send up to this many bytes, counted from the beginning of the subscription."""

    stream: str
    subscription: Subscription
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Tell the producer how far its rows have arrived at a consumer."""

    stream: str
    consumer: str
    incarnation: int
    level: RowStage
    upto: Position


@dataclass(frozen=True, slots=True)
class StandbyPlacement:
    """The valid start of a unit's standby. If the standby takes over, it becomes the start of the unit."""

    node: str
    incarnation: int
    #: True if it began together with the unit, so that it needs no copy of the state.
    fresh: bool = False
    #: For symmetric pairs: True once all know that it receives the same rows as its primary.
    in_step: bool = False
    #: True once it has a copy and can take over.
    has_copy: bool = False

    @property
    def ready(self) -> bool:
        return self.fresh or self.has_copy


@dataclass(frozen=True, slots=True)
class UnitPlacement:
    """The valid start of a unit, and its node. The node is None while no node is free."""

    node: str | None
    incarnation: int
    #: The checkpoint that it begins with, as the (incarnation, number) of its writer.
    checkpoint: tuple[int, int] | None = None
    #: The slot of the replica in its pair, 0 or 1. The standby has the other slot.
    slot: int = 0
    standby: StandbyPlacement | None = None
    #: True if it was the standby before.
    took_over: bool = False
    #: The highest incarnation so far of the unit or its standby.
    starts: int = 0
    #: The restart point at which it begins empty, for units that record such points.
    restart: RestartPoint | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of all units. Later ones have a higher version."""

    version: int
    units: Mapping[str, UnitPlacement]
    #: The addresses that the nodes reported; empty if the host needs none.
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeHeartbeat:
    """A node is alive. Each start of its process has a new `session`."""

    node: str
    session: str
    placement_version: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class NodeAlive:
    """The process of a node runs. A separate thread sends this while the node is busy with one batch."""

    node: str
    session: str


class CheckpointCost(NamedTuple):
    """The cost of a checkpoint: new pages, pages that it refers to, and how long the unit was stopped."""

    pages_written: int = 0
    pages_referred: int = 0
    bytes_written: int = 0
    pause_us: int = 0
    stored_us: int = 0


NO_COST = CheckpointCost()


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    unit: str
    incarnation: int
    number: int
    cost: CheckpointCost = NO_COST
    #: The last event that it covers, if the unit's events are recorded.
    event: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRecorded:
    """A restart of the unit will begin with this checkpoint, so anything older may be dropped."""

    unit: str
    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class RestartPointReached:
    """The unit could begin at this point: its consumers do not need anything older."""

    unit: str
    incarnation: int
    number: int
    point: RestartPoint
    #: Changes of operators' phases since the last recorded point, packed.
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class RestartPointRecorded:
    """A restart of the unit will begin at this point, so anything older may be dropped."""

    unit: str
    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class UnitStopped:
    """A unit cannot continue: an operator raised an error, its state cannot be loaded, or rows are lost."""

    unit: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnitRecovered:
    """A restarted unit has processed all rows that existed when it restarted."""

    unit: str
    incarnation: int
    load_us: int
    replay_us: int


@dataclass(frozen=True, slots=True)
class RowsLate:
    """The number of late rows that each operator of a unit has left out, except operators without any."""

    unit: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """A piece of a copy of a unit's state: the pages changed since copy `base`, or all pages if that is 0."""

    unit: str
    #: The start of the standby that receives it.
    standby: int
    number: int
    base: int
    #: The index of the piece, and the number of pieces.
    piece: int
    pieces: int
    #: The state of the unit when it was copied: its last event, and the positions of its inputs.
    event: int
    positions: Mapping[str, Position]
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyHeld:
    """The standby has the pieces of a copy up to this one. `usable` is False if it lacks the copy's base."""

    unit: str
    standby: int
    number: int
    piece: int
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Determinants:
    """Events of a unit. Output that depends on them is sent once the standby has them."""

    unit: str
    standby: int
    first: int
    events: tuple[UnitEvent, ...]


@dataclass(frozen=True, slots=True)
class DeterminantsHeld:
    unit: str
    standby: int
    upto: int


@dataclass(frozen=True, slots=True)
class TrimOutput:
    """Consumers have an output up to row `upto`, made from the inputs up to `positions` (HA 5.3)."""

    unit: str
    standby: int
    stream: str
    upto: int
    positions: Mapping[str, Position] | None = None


@dataclass(frozen=True, slots=True)
class StandbyInStep:
    """An active standby, which began with copy `number`, receives all rows of its primary from now on."""

    unit: str
    standby: int
    number: int


@dataclass(frozen=True, slots=True)
class TakeCheckpoints:
    """Ask a node to write a checkpoint of each of its units now: the query is to stop."""


@dataclass(frozen=True, slots=True)
class StandbyReady:
    """A standby that did not begin with its unit can take over: it has a copy, and all events since."""

    unit: str
    standby: int


@dataclass(frozen=True, slots=True)
class EventsHappened:
    """Events of a unit. Output that depends on them is sent once the controller has them."""

    unit: str
    incarnation: int
    first: int
    events: tuple[UnitEvent, ...]


@dataclass(frozen=True, slots=True)
class EventsKept:
    unit: str
    incarnation: int
    upto: int


@dataclass(frozen=True, slots=True)
class HistoryWanted:
    """The node of a unit that is about to begin requests a part of the unit's history."""

    unit: str
    incarnation: int
    part: int


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """One part of a unit's history: events since it began. The first part also has the phases."""

    unit: str
    incarnation: int
    part: int
    parts: int
    #: The number of the first of the events.
    first: int
    events: tuple[UnitEvent, ...]
    #: Phases of operators, packed.
    data: bytes = b""


#: Messages between the two halves of a pair.
PairMessage = CopyPiece | CopyHeld | Determinants | DeterminantsHeld | TrimOutput | StandbyInStep

Message = (
    Subscribe
    | Subscribed
    | Data
    | Ended
    | Credit
    | Ack
    | Placement
    | NodeHeartbeat
    | NodeAlive
    | CheckpointStored
    | CheckpointRecorded
    | RestartPointReached
    | RestartPointRecorded
    | UnitStopped
    | UnitRecovered
    | CopyPiece
    | CopyHeld
    | Determinants
    | DeterminantsHeld
    | TrimOutput
    | StandbyInStep
    | StandbyReady
    | RowsLate
    | Pause
    | Paused
    | EventsHappened
    | EventsKept
    | HistoryWanted
    | HistoryPart
    | TakeCheckpoints
)

#: (incarnation, number) of the unit that stored it
CheckpointId = tuple[int, int]


def sequence_of(checkpoint: CheckpointId) -> int:
    """Return the sequence number of a checkpoint within its unit. Later starts have higher ones."""
    incarnation, number = checkpoint
    assert 0 < number < dataflow_checkpoints_per_start_max
    return incarnation * dataflow_checkpoints_per_start_max + number


def checkpoint_of(sequence: int) -> CheckpointId:
    """Return the checkpoint for a number from `sequence_of`."""
    return divmod(sequence, dataflow_checkpoints_per_start_max)
