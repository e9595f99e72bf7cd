"""Recovery techniques as declared plans: values that say how a unit is kept and how it begins again.

    Technique(
        name="sguard",
        retention=RowStage.SAFE,
        stores=Storage.CHECKPOINTS,
        interval_s=1.0,
        events=EventsAt.CONTROLLER,
        gives=ALWAYS_PRECISE,
    )

A technique holds no code. The core reads it, and what a plan needs of a query is checked from its fields
(`techniques/admission.py`). A new combination is a new value.
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
    """The nodes of a unit, and who of them sends."""

    ONE = "one"
    #: A second node keeps copies of the state (HA 5.1).
    COPY = "copy"
    #: A second node processes the same rows, and keeps its output to itself (HA 5.3).
    FOLLOWER = "follower"
    #: Both nodes process and send, each to the consumers in its own slot (Flux 3).
    EQUALS = "equals"
    #: Reducers on a ring, which keep each other's rows and state (SMR V).
    RING = "ring"

    @property
    def paired(self) -> bool:
        """True if the unit runs, or is copied to, a second node."""
        return self in (Replicas.COPY, Replicas.FOLLOWER, Replicas.EQUALS)

    @property
    def both_read(self) -> bool:
        """True if both nodes read the unit's inputs."""
        return self in (Replicas.FOLLOWER, Replicas.EQUALS)


class Storage(Enum):
    """What of a unit is durable."""

    NOTHING = "nothing"
    #: The state, in checkpoints that the controller records (SGuard 4).
    CHECKPOINTS = "checkpoints"
    #: Single windows, in the log of the unit's output, which says by itself where the unit begins (CEC II).
    WINDOW_LOG = "window log"


class EventsAt(Enum):
    """Where the events of an arbitrary unit are kept before output that depends on them leaves (HA 6)."""

    NOWHERE = "nowhere"
    STANDBY = "standby"
    CONTROLLER = "controller"


class Numbering(Enum):
    """The numbers of a unit's output after it has begun again."""

    #: It goes on with its numbers, so that consumers leave out rows that they have.
    KEPT = "kept"
    #: Each start numbers anew, and consumers get rows again.
    ANEW = "anew"


@dataclass(frozen=True)
class CauseTrimming:
    """Producers keep the rows that states depend on, as the causes of output tell (HA 5.2)."""

    #: A row goes once consumers have what it caused at this stage.
    level: RowStage
    #: True if the controller records the points at which the unit can begin, so that it goes on precisely (HA 6).
    recorded: bool


@dataclass(frozen=True)
class PairPlacing:
    """How pairs of equals are placed and brought back (Flux 5)."""

    #: So many nodes run nothing until another one dies.
    standby_nodes: int = 0
    #: A stage is brought back so long after the loss, and after the stage before.
    catch_up_after_s: float = 0.0


#: What a technique gives, by the class of what it recovers (HA, Table 2).
Gives = Mapping[OperatorClass, Recovery]

ALWAYS_PRECISE: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.PRECISE)
ALWAYS_GAP: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.GAP)
ALWAYS_DIVERGENT: Final[Gives] = dict.fromkeys(OperatorClass, Recovery.DIVERGENT)
PRECISE_UNLESS_ARBITRARY: Final[Gives] = {**ALWAYS_PRECISE, OperatorClass.ARBITRARY: Recovery.DIVERGENT}
#: From a copy of the state, rows come again as they were.
FROM_STATE: Final[Gives] = {
    **dict.fromkeys(OperatorClass, Recovery.REPEATING),
    OperatorClass.ARBITRARY: Recovery.DIVERGENT,
}
#: From rows alone, a state is made again as far as the operators' class lets it.
FROM_ROWS: Final[Gives] = {
    OperatorClass.REPEATABLE: Recovery.REPEATING,
    OperatorClass.CONVERGENT_CAPABLE: Recovery.CONVERGENT,
    OperatorClass.DETERMINISTIC: Recovery.DIVERGENT,
    OperatorClass.ARBITRARY: Recovery.DIVERGENT,
}


@dataclass(frozen=True, kw_only=True)
class Technique:
    """How a unit is kept, and how it begins again."""

    name: str
    #: A producer drops a row once the unit has it at this stage. SENT: also while the unit is away.
    retention: RowStage
    gives: Gives = field(repr=False)
    replicas: Replicas = Replicas.ONE
    stores: Storage = Storage.NOTHING
    #: Time between two checkpoints, commits, copies or acknowledgements.
    interval_s: float = 0.0
    events: EventsAt = EventsAt.NOWHERE
    numbering: Numbering = Numbering.KEPT
    causes: CauseTrimming | None = None
    #: Of a log of windows: which are checked.
    windows: CheckPolicy | None = None
    pairs: PairPlacing | None = None
    ring: RingPlan | None = None

    def promises(self, kind: OperatorClass) -> Recovery:
        """Return the kind of recovery that operators of this class get (HA, Table 2)."""
        return self.gives[kind]

    @property
    def tolerates_gaps(self) -> bool:
        """True if rows may be lost; otherwise a unit that finds rows lost stops the query."""
        return self.retention is RowStage.SENT

    @property
    def takes_checkpoints(self) -> bool:
        """True if what a unit has outlives the program that started the query."""
        return self.stores is not Storage.NOTHING

    @property
    def precise(self) -> bool:
        """True if the output after a failure is one that a run without a failure gives."""
        return self.gives[OperatorClass.REPEATABLE] is Recovery.PRECISE

    @property
    def nodes_min(self) -> int:
        """The nodes that it needs."""
        if self.ring is not None:
            return self.ring.settings.r + 1 + self.ring.arrangement.spares
        return (2 if self.replicas.paired else 1) + (self.pairs.standby_nodes if self.pairs is not None else 0)

    def check_nodes(self, nodes: int) -> None:
        """Raise InvalidQuery if so many nodes are too few."""
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
            f"{self.name} wants a second node for each unit, and there is {nodes}: give the host {self.nodes_min} "
            "or more"
        )
