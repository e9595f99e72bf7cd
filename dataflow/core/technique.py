"""Recovery techniques as rules on top of buffers that are the same for all.

A technique says how long rows are kept (`retention`), what is acknowledged and when checkpoints are taken (a
*guard* for each unit), and whether a unit that begins again goes on with its numbers (`lineage`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import Mark, RowStage
from peacefs.dataflow.core.pair_plan import PairPlan
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.numbers import is_number
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.protocol.errors import InvalidQuery

Positions = Mapping[str, Position]


@dataclass(frozen=True)
class TakeCheckpoint:
    """Capture the unit now and store it under a number."""

    number: int


@dataclass(frozen=True)
class Acknowledge:
    """Tell producers how far their rows have come."""

    level: RowStage
    upto: Positions


@dataclass(frozen=True)
class AcknowledgeCovered:
    """Tell producers up to where the unit's own log has what it needs."""

    level: RowStage


@dataclass(frozen=True)
class TrimByCauses:
    """Tell producers which of their rows matter no more, once consumers have what those rows caused.

    Consumers must have it at `level`. With `recorded` the controller learns before of the point at which the unit
    would begin.
    """

    level: RowStage
    recorded: bool


Action = TakeCheckpoint | Acknowledge | AcknowledgeCovered | TrimByCauses


class StandbyKind(Enum):
    """The work of a unit's second node before it takes over (HA 5.1, 5.3)."""

    #: It keeps copies of the primary's state.
    PASSIVE = "passive"
    #: It processes what the primary processes, and keeps its output to itself.
    ACTIVE = "active"


@dataclass(frozen=True)
class RecoveryPlan:
    """Everything that the controller has to know of a technique to recover the units of a network."""

    #: Each unit has a standby of this kind on a second node; None: units run on one node.
    standby: StandbyKind | None = None
    #: How pairs of equal replicas are placed and brought back; None: the controller does as it likes.
    pairs: PairPlan | None = None
    #: Units whose history the controller keeps.
    with_history: Collection[str] = ()


class Guard:
    """A technique at work for one unit on its node. Every event may lead to actions."""

    def tick(self, now_s: float, positions: Positions) -> Iterable[Action]:
        """Time passes; `positions` says how far the unit has processed each of its inputs."""
        return ()

    def hurry(self) -> None:
        """Producers that keep all rows since the last checkpoint will soon have no room for more."""

    def recorded(self, number: int) -> Iterable[Action]:
        """A checkpoint is stored, and the controller will begin the unit with it."""
        return ()

    def failed(self, number: int) -> None:
        """A checkpoint was not stored: it was cancelled, since its turn was too far away, or something failed."""


class Technique(ABC):
    name: ClassVar[str]
    #: True if rows for an absent consumer are dropped, so that nothing waits for it.
    drops_for_absent: ClassVar[bool] = False
    #: True if units take checkpoints, so that their state must hold the rows of their outputs, too.
    takes_checkpoints: ClassVar[bool] = False
    #: True if each unit has a log of its own, which says what it begins with: no controller records that.
    loads_itself: ClassVar[bool] = False
    #: True if rows may be lost; otherwise a unit that finds rows lost stops the query.
    tolerates_gaps: ClassVar[bool] = False
    #: The standby that each unit has on a second node.
    standby: ClassVar[StandbyKind | None] = None
    #: True if both nodes of a pair send rows, each to the consumers in its own slot, and none is above the other.
    symmetric: ClassVar[bool] = False
    #: So often a standby is told of what it has to know.
    standby_interval_s: float = 0.0
    #: True if units note which of their input rows their state depends on, and retain output as long as others'
    #: states depend on it, which does not hold the unit up.
    tracks_causes: ClassVar[bool] = False
    #: True if a unit begins with the oldest rows that its producers have, and not at a position of its own.
    begins_with_oldest: bool = False
    #: True if a unit that begins again does not make all rows again that its consumers may ask for.
    forgets_rows: bool = False

    def records_events(self, unit: OperatorClass) -> bool:
        """Return whether a unit of this class records its events for its standby (HA 6)."""
        return False

    def pair_plan(self, network: Network) -> PairPlan | None:
        """Return how the controller places pairs and brings lost ones back; None if it does as it likes."""
        return None

    def keeps_events(self, plan: UnitPlan) -> bool:
        """Return whether the controller keeps a unit's events, for whatever node repeats them (HA 6)."""
        return False

    def keeps_phases(self, plan: UnitPlan) -> bool:
        """Return whether the controller keeps phases of a unit's operators, which then begins with them."""
        return False

    def keeps_history(self, plan: UnitPlan) -> bool:
        return self.keeps_events(plan) or self.keeps_phases(plan)

    def recovery_plan(self, network: Network) -> RecoveryPlan:
        histories = [plan.name for plan in network.units if self.keeps_history(plan)]
        return RecoveryPlan(self.standby, self.pair_plan(network), histories)

    def check_nodes(self, nodes: int) -> None:
        """Raise InvalidQuery if so many nodes are too few."""
        if not is_number(nodes, whole=True) or nodes < 1:
            raise InvalidQuery(f"units want a node, and the host has {nodes!r}: give it 1 or more")

    def check(self, network: Network) -> None:
        """Raise InvalidQuery if the technique cannot run a network; the message says what to change."""
        return

    @abstractmethod
    def promises(self, network: OperatorClass) -> Recovery:
        """Return the kind of recovery that a network of this class gets (HA, Table 2)."""

    def promises_for(self, network: Network) -> Recovery:
        """Return the kind of recovery that a network gets; `promises` unless one of its functions forbids it."""
        return self.promises(network.operator_class)

    @abstractmethod
    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        """Return the marks that a row needs before it goes from the output buffer."""

    @abstractmethod
    def lineage(self, incarnation: int) -> int:
        """Return the numbering of a unit's output: the same for all its starts if duplicates can be recognised."""

    def lineage_of(self, plan: UnitPlan, network: Network, incarnation: int) -> int:
        """Return the numbering of a unit's output; `lineage` unless that depends on its operators."""
        return self.lineage(incarnation)

    @abstractmethod
    def guard(self, unit: str, now_s: float) -> Guard: ...


def refuse_unrecorded(technique: str, network: Network) -> None:
    """Raise InvalidQuery for an operator of which a replay of the same events may give other rows."""
    for operator in network.operators:
        why = operator.specification.unrecorded
        if why is not None:
            raise InvalidQuery(
                f"{technique} cannot be precise for operator {operator.name!r}: {why}, or give precise=False"
            )
