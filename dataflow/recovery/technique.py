"""Recovery techniques as declared plans: values that say how a unit is protected and restarted.

    Technique(
        name="sguard",
        retention=RowStage.SAFE,
        stores=Storage.CHECKPOINTS,
        interval_s=1.0,
        events=EventsAt.CONTROLLER,
        gives=ALWAYS_PRECISE,
    )

A technique contains no code. The core interprets it, and `techniques/admission.py` derives from its fields what it
requires of a query. A new combination is a new value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from peacefs.dataflow.model.numbers import is_number
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.window_checkpoints.extent import CheckPolicy
from peacefs.protocol.errors import InvalidQuery

from .ring_settings import RingPlan


class Replicas(Enum):
    """How many nodes a unit has, and which of them send."""

    ONE = "one"
    #: A second node keeps copies of the state (HA 5.1).
    COPY = "copy"
    #: A second node processes the same rows, but does not send its output (HA 5.3).
    FOLLOWER = "follower"
    #: Both nodes process and send, each to the consumers in its own slot (Flux 3).
    EQUALS = "equals"
    #: Reducers on a ring keep each other's rows and state (SMR V).
    RING = "ring"

    @property
    def paired(self) -> bool:
        """True if the unit runs on, or is copied to, a second node."""
        return self in (Replicas.COPY, Replicas.FOLLOWER, Replicas.EQUALS)

    @property
    def both_read(self) -> bool:
        """True if both nodes read the unit's inputs."""
        return self in (Replicas.FOLLOWER, Replicas.EQUALS)


class Storage(Enum):
    """Which data of a unit is durable."""

    NOTHING = "nothing"
    #: The state, in checkpoints that the controller records (SGuard 4).
    CHECKPOINTS = "checkpoints"
    #: Single windows, in the log of the unit's output. The log alone says where the unit begins (CEC II).
    WINDOW_LOG = "window log"


class EventsAt(Enum):
    """Where the events of an arbitrary unit are stored before output that depends on them is sent (HA 6)."""

    NOWHERE = "nowhere"
    STANDBY = "standby"
    CONTROLLER = "controller"


class Numbering(Enum):
    """How a unit numbers its output after a restart."""

    #: It continues its numbering, so that consumers can drop rows that they have.
    KEPT = "kept"
    #: Each start begins a new numbering, and consumers get rows again.
    ANEW = "anew"


@dataclass(frozen=True)
class CauseTrimming:
    """Producers find out from the causes of output which rows consumers' states depend on (HA 5.2)."""

    #: A row is dropped once consumers have everything it caused, at this stage.
    level: RowStage
    #: True if the controller records the points at which the unit can begin, which makes recovery precise (HA 6).
    recorded: bool


@dataclass(frozen=True)
class PairPlacing:
    """How pairs of equals are placed and restored (Flux 5)."""

    #: Number of nodes that run nothing until another node dies.
    standby_nodes: int = 0
    #: Delay from the loss, or from the previous stage, until a stage is restored.
    catch_up_after_s: float = 0.0


#: The kind of recovery of a technique, by the class of what it recovers (HA, Table 2).
Gives = Mapping[OperatorClass, Recovery]

ALWAYS_PRECISE: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.PRECISE)
ALWAYS_GAP: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.GAP)
ALWAYS_DIVERGENT: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.DIVERGENT)
PRECISE_UNLESS_ARBITRARY: Final[Gives] = {**ALWAYS_PRECISE, OperatorClass.ARBITRARY: Recovery.DIVERGENT}
#: From a copy of the state, rows are repeated unchanged.
FROM_STATE: Final[Gives] = {
    **dict.fromkeys(OperatorClass, Recovery.REPEATING),
    OperatorClass.ARBITRARY: Recovery.DIVERGENT,
}
#: From rows alone, the state is rebuilt as far as the operators' class allows.
FROM_ROWS: Final[Gives] = {
    OperatorClass.REPEATABLE: Recovery.REPEATING,
    OperatorClass.CONVERGENT_CAPABLE: Recovery.CONVERGENT,
    OperatorClass.DETERMINISTIC: Recovery.DIVERGENT,
    OperatorClass.ARBITRARY: Recovery.DIVERGENT,
}


@dataclass(frozen=True, kw_only=True)
class Technique:
    """How a unit is protected, and how it is restarted."""

    name: str
    #: A producer drops a row once the unit has it at this stage. SENT: even while the unit is away.
    retention: RowStage
    gives: Gives = field(repr=False)
    replicas: Replicas = Replicas.ONE
    stores: Storage = Storage.NOTHING
    #: Time between two checkpoints, commits, copies or acknowledgements.
    interval_s: float = 0.0
    events: EventsAt = EventsAt.NOWHERE
    numbering: Numbering = Numbering.KEPT
    causes: CauseTrimming | None = None
    #: For a log of windows: which windows are checked.
    windows: CheckPolicy | None = None
    pairs: PairPlacing | None = None
    ring: RingPlan | None = None

    def promises(self, kind: OperatorClass) -> Recovery:
        """Return the kind of recovery that operators of this class get (HA, Table 2)."""
        return self.gives[kind]

    @property
    def tolerates_gaps(self) -> bool:
        """True if rows may be lost. If False, a unit that finds rows missing stops the query."""
        return self.retention is RowStage.SENT

    @property
    def takes_checkpoints(self) -> bool:
        """True if the state of a unit outlives the program that started the query."""
        return self.stores is not Storage.NOTHING

    @property
    def precise(self) -> bool:
        """True if repeatable operators give the output of a run without a failure."""
        return self.gives[OperatorClass.REPEATABLE] is Recovery.PRECISE

    @property
    def nodes_min(self) -> int:
        """The minimum number of nodes."""
        if self.ring is not None:
            return self.ring.settings.r + 1 + self.ring.arrangement.spares
        return (2 if self.replicas.paired else 1) + (self.pairs.standby_nodes if self.pairs is not None else 0)

    def check_nodes(self, nodes: int) -> None:
        """Raise InvalidQuery if there are too few nodes."""
        if not is_number(nodes, whole=True) or nodes < 1:
            raise InvalidQuery(f"units want a node, and the host has {nodes!r}: give it 1 or more")
        if nodes >= self.nodes_min:
            return
        if self.ring is not None:
            r, spares = self.ring.settings.r, self.ring.arrangement.spares
            raise InvalidQuery(
                f"PeerRing(r={r}) keeps each tuple on {r + 1} nodes, and the ring has {nodes - spares}: "
                f"start {self.nodes_min} nodes or more, or choose a smaller r"
            )
        if self.pairs is not None:
            standing_by = self.pairs.standby_nodes
            raise InvalidQuery(
                f"Flux keeps the two of a pair on different nodes, and {nodes} with {standing_by} of them "
                f"standing by leave {max(nodes - standing_by, 0)}: give the host {self.nodes_min} or more"
            )
        raise InvalidQuery(
            f"{self.name} needs a second node for each unit, and there is {nodes}: give the host {self.nodes_min} "
            "or more"
        )
