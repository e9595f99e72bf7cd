"""Effects: orders of a core to its host, which performs them and calls the core with the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.unit_state.interface import StateCapture

from .messages import CheckpointCost, Message


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a node, or to the controller; in order, and as far as the connection holds."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write what was captured, while the unit goes on; then call `NodeCore.stored`."""

    unit: str
    incarnation: int
    number: int
    capture: StateCapture


@dataclass(frozen=True, slots=True)
class LoadCheckpoint:
    """Load a checkpoint of a unit that is to begin here; then call `NodeCore.loaded`."""

    unit: str
    #: The incarnation of the unit that begins.
    incarnation: int
    checkpoint: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """Record, so that it outlives the controller, that a unit begins with this one; then call `recorded`."""

    unit: str
    checkpoint: tuple[int, int]
    cost: CheckpointCost


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint:
    unit: str
    checkpoint: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RetainCheckpoints:
    """Delete all checkpoints of a unit that are older than this one, recorded or not."""

    unit: str
    oldest: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CopyState:
    """Make a copy of what was captured, for the unit's standby; then call `NodeCore.copied`."""

    unit: str
    incarnation: int
    number: int
    capture: StateCapture


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Keep a copy of a unit's state in memory, in the place of the one before, on which it may be based."""

    unit: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LoadCopy:
    """Load the copy that is kept for a unit that begins here; then call `NodeCore.loaded`."""

    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class DropCopy:
    unit: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give rows to a sink. Their numbers rise within a lineage."""

    sink: str
    lineage: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class SinkEnded:
    sink: str


@dataclass(frozen=True, slots=True)
class StopQuery:
    """The query cannot go on."""

    reason: str


Effect = (
    SendMessage
    | StoreCheckpoint
    | LoadCheckpoint
    | RecordCheckpoint
    | DeleteCheckpoint
    | RetainCheckpoints
    | CopyState
    | KeepCopy
    | LoadCopy
    | DropCopy
    | Deliver
    | SinkEnded
    | StopQuery
)
