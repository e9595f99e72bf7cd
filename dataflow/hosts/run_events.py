"""Events of a run, for measurements: deaths, placements, checkpoints, recoveries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peacefs.dataflow.core.messages import CheckpointCost


@dataclass(frozen=True, slots=True)
class NodeLost:
    node: str


@dataclass(frozen=True, slots=True)
class UnitsPlaced:
    """The places of units, or of their standbys, have changed: unit -> (node, incarnation)."""

    units: dict[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    unit: str
    number: int
    cost: CheckpointCost


@dataclass(frozen=True, slots=True)
class RecoveryMeasured:
    unit: str
    incarnation: int
    load_s: float
    replay_s: float


@dataclass(frozen=True, slots=True)
class StandbyMissing:
    """A unit continues without a standby, since no node is free or a new half has not caught up."""

    unit: str


@dataclass(frozen=True, slots=True)
class StandbyHasCopy:
    """A new standby of a unit has a copy of its state, and can take over from now on."""

    unit: str


@dataclass(frozen=True, slots=True)
class RingChanged:
    """A ring has other members, or its members have other tokens."""

    ring: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairComplete:
    """A pair that had lost a half has two halves again, and both send rows."""

    unit: str
    node: str


RunEvent = (
    NodeLost
    | UnitsPlaced
    | CheckpointTaken
    | RecoveryMeasured
    | StandbyMissing
    | RingChanged
    | PairComplete
    | StandbyHasCopy
)
#: A function that is called with the time (`time.monotonic`) and the event, on the host's thread. It must return
#: quickly.
Observer = Callable[[float, RunEvent], None]
