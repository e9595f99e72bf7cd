"""Messages of nodes and the controller. Connections keep their order; a broken one loses what is on its way."""

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
    """One attempt of one start of a consumer to read a stream. Later ones are greater."""

    consumer: str
    incarnation: int
    attempt: int


def unasked(consumer: str, incarnation: int, producer: int) -> Subscription:
    """Return the subscription that a producer which takes over makes for a consumer; all others are later."""
    return Subscription(consumer, incarnation, -producer)


def is_unasked(subscription: Subscription) -> bool:
    return subscription.attempt < 0


def producer_of(subscription: Subscription) -> int:
    """Return the incarnation of the producer that has made a subscription."""
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
    """Say where the rows begin that will be sent; `lost` ones were asked for and are there no longer."""

    stream: str
    subscription: Subscription
    after: Position
    lost: int
    #: The last row that the producer has by now.
    produced: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask the producer to send no more rows."""

    stream: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Paused:
    """Say, behind all rows that were sent, that no more come."""

    stream: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Data:
    """Rows, and all bytes sent in this subscription by then, as the producer counts them: credit is of these."""

    stream: str
    subscription: Subscription
    batch: Batch
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """Say that the stream has no rows after number `last`."""

    stream: str
    subscription: Subscription
    last: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow the producer to send up to so many bytes, counted from the beginning of the subscription."""

    stream: str
    subscription: Subscription
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Tell the producer how far its rows have come at a consumer."""

    stream: str
    consumer: str
    incarnation: int
    level: RowStage
    upto: Position


@dataclass(frozen=True, slots=True)
class StandbyPlacement:
    """The valid start of a unit's standby, which becomes that of the unit when it takes over."""

    node: str
    incarnation: int
    #: True if it began with the unit, so that it needs no copy of its state.
    fresh: bool = False
    #: True once all know that it gets what its primary gets, of techniques whose pairs are symmetric.
    in_step: bool = False
    #: True once it has a copy, so that it can take over.
    has_copy: bool = False

    @property
    def ready(self) -> bool:
        return self.fresh or self.has_copy


@dataclass(frozen=True, slots=True)
class UnitPlacement:
    """The valid start of a unit, and its node: None while no node is free."""

    node: str | None
    incarnation: int
    #: The checkpoint that it begins with, as (incarnation, number) of its writer.
    checkpoint: tuple[int, int] | None = None
    #: The place of the replica in its pair, 0 or 1; a standby has the other.
    slot: int = 0
    standby: StandbyPlacement | None = None
    #: True if it was the standby before.
    took_over: bool = False
    #: The highest incarnation that a start of the unit, or of its standby, has had.
    starts: int = 0
    #: The point at which it begins empty, if it is one that notes such points.
    restart: RestartPoint | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of all units. Later ones have a higher version."""

    version: int
    units: Mapping[str, UnitPlacement]
    #: The nodes' addresses, as they gave them; empty where the host needs none.
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeHeartbeat:
    """A node is alive. `session` is another after each start of its process."""

    node: str
    session: str
    placement_version: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class NodeAlive:
    """The process of a node runs, as a thread of its own says while the node is busy with one batch."""

    node: str
    session: str


class CheckpointCost(NamedTuple):
    """The cost of a checkpoint: pages of its own, pages that it refers to, how long the unit stood still."""

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
    #: The last event that it covers, of a unit whose events are recorded.
    event: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRecorded:
    """The controller will begin the unit with this checkpoint, so that what is older may go."""

    unit: str
    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class RestartPointReached:
    """A unit could begin at this point: its consumers do not need what is before."""

    unit: str
    incarnation: int
    number: int
    point: RestartPoint
    #: Phases of operators that have changed since the last point that was recorded, packed.
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class RestartPointRecorded:
    """The controller will begin the unit at this point, so that what is older may go."""

    unit: str
    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class UnitStopped:
    """A unit cannot go on: an operator raised an error, or rows are lost that it needs."""

    unit: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnitRecovered:
    """A unit that began again has processed all rows that there were then."""

    unit: str
    incarnation: int
    load_us: int
    replay_us: int


@dataclass(frozen=True, slots=True)
class RowsLate:
    """Say how many rows each operator of a unit has left out by now as late, of those that have left out any."""

    unit: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """A piece of a copy of a unit's state: the pages that changed since copy `base`, or all if that is 0."""

    unit: str
    #: The start of the standby that it is for.
    standby: int
    number: int
    base: int
    #: The piece's place, and how many there are.
    piece: int
    pieces: int
    #: The unit was there when it was copied: after which event, and how far its inputs were.
    event: int
    positions: Mapping[str, Position]
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyHeld:
    """The standby has the pieces of a copy up to this one; with `usable` False, it lacks the copy's base."""

    unit: str
    standby: int
    number: int
    piece: int
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Determinants:
    """Events of a unit, which its standby is to hold before output that depends on them leaves."""

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
    """Consumers have an output up to row `upto`, which was made from inputs up to `positions` (HA 5.3)."""

    unit: str
    standby: int
    stream: str
    upto: int
    positions: Mapping[str, Position] | None = None


@dataclass(frozen=True, slots=True)
class StandbyInStep:
    """An active standby, which began with copy `number`, gets all rows that its primary gets from now on."""

    unit: str
    standby: int
    number: int


@dataclass(frozen=True, slots=True)
class StandbyReady:
    """A standby that did not begin with its unit can take over: it has a copy, and the events since."""

    unit: str
    standby: int


@dataclass(frozen=True, slots=True)
class EventsHappened:
    """Events of a unit, which the controller is to keep before output that depends on them leaves."""

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
    """A unit is to begin, and its node asks the controller for a part of the unit's history."""

    unit: str
    incarnation: int
    part: int


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """One of the parts of a unit's history: events since it began, and in the first part phases."""

    unit: str
    incarnation: int
    part: int
    parts: int
    #: The number of the first of the events.
    first: int
    events: tuple[UnitEvent, ...]
    #: Phases of operators, packed.
    data: bytes = b""


#: Messages between the two of a pair.
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
)

#: (incarnation, number) of the unit that stored it
CheckpointId = tuple[int, int]


def sequence_of(checkpoint: CheckpointId) -> int:
    """Return the number of a checkpoint among all of its unit: later starts have higher ones."""
    incarnation, number = checkpoint
    assert 0 < number < dataflow_checkpoints_per_start_max
    return incarnation * dataflow_checkpoints_per_start_max + number


def checkpoint_of(sequence: int) -> CheckpointId:
    """Return what `sequence_of` was given."""
    return divmod(sequence, dataflow_checkpoints_per_start_max)
