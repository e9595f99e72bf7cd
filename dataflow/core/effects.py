"""Effects: orders of a core to its host. The host performs them, and reports the outcome to the core."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.unit_state.interface import StateCapture

from .messages import CheckpointCost, Message


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a node or the controller. Messages arrive in order unless the connection breaks."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write a capture while the unit continues; then call `NodeCore.stored`."""

    unit: str
    incarnation: int
    number: int
    capture: StateCapture


@dataclass(frozen=True, slots=True)
class LoadCheckpoint:
    """Load a checkpoint of a unit that is about to begin here; then call `NodeCore.loaded`."""

    unit: str
    #: The incarnation of the unit that is about to begin.
    incarnation: int
    checkpoint: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """Record durably that a unit begins with this checkpoint; then call `recorded`."""

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
    """Copy a capture for the unit's standby; then call `NodeCore.copied`."""

    unit: str
    incarnation: int
    number: int
    capture: StateCapture


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Keep a copy of a unit's state in memory. It replaces the previous copy, on which it may be based."""

    unit: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LoadCopy:
    """Load the copy that is kept for a unit that is about to begin here; then call `NodeCore.loaded`."""

    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class DropCopy:
    unit: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver rows to a sink. Their numbers rise within a lineage."""

    sink: str
    lineage: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Let a sink commit all rows that were delivered; then call `EdgeCore.committed`. No more rows follow."""

    sink: str


@dataclass(frozen=True, slots=True)
class SinkEnded:
    sink: str


@dataclass(frozen=True, slots=True)
class StopQuery:
    """The query cannot continue."""

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
    | CommitRows
    | SinkEnded
    | StopQuery
)
