"""The techniques of a query's units, applied: what one unit keeps, and what its neighbours need.

A technique is a value that fits any unit. This module combines it with the operators of a unit and the techniques
of neighbouring units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from peacefs.dataflow.limits import dataflow_incarnations_per_run_max
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.dataflow.recovery.technique import EventsAt, Numbering, Replicas, Storage, Technique

from .pair_plan import PairPlan
from .replicas import both, unit_of


@dataclass(frozen=True)
class RecoveryPlan:
    """Everything that the controller needs to know about the techniques of a network's units."""

    #: Units that have a second node. All others run on one node.
    replicas: Mapping[str, Replicas] = field(default_factory=dict)
    #: How pairs of equals are placed and restored; None if there are none.
    pairs: PairPlan | None = None
    #: Units whose history the controller keeps.
    with_history: Collection[str] = ()


@dataclass(frozen=True)
class UnitRecovery:
    """The technique of one unit, and its consequences for the unit's operators."""

    technique: Technique
    #: The controller keeps the unit's events, so that any node can repeat them (HA 6).
    keeps_events: bool = False
    #: The controller keeps the phases of the unit's operators, for them to begin with.
    keeps_phases: bool = False
    #: The unit records its events for its standby (HA 6).
    records_events: bool = False
    numbers_anew: bool = False
    #: The output gets a new numbering when a program resumes the query, because the random choices that it depends
    #: on died with the previous program.
    numbers_anew_when_resumed: bool = False

    @property
    def keeps_history(self) -> bool:
        return self.keeps_events or self.keeps_phases

    def lineage(self, incarnation: int) -> int:
        """Return the numbering of the unit's output: the same for all starts if duplicates can be recognised."""
        if self.numbers_anew:
            return incarnation
        if self.numbers_anew_when_resumed:
            return (incarnation - 1) // dataflow_incarnations_per_run_max
        return 0


class QueryRecovery:
    """How each unit of a network is recovered: by its own technique, or by that of the query.

    A producer keeps a row for a consumer until the consumer's technique lets it go. For a sink, the producer's own
    technique decides. So a unit with another technique acts like a source or a sink.
    """

    def __init__(self, network: Network, technique: Technique) -> None:
        """`technique`: for the units that have none of their own."""
        self.network = network
        self.technique = technique
        self._units: dict[str, UnitRecovery] = {}
        self._destinations: dict[str, dict[str, RowStage]] = {}
        for plan in network.units:
            self._units[plan.name] = self._resolved(plan)

    def of(self, unit: str) -> UnitRecovery:
        return self._units[unit]

    def technique_of(self, unit: str) -> Technique:
        return self._units[unit].technique

    @property
    def techniques(self) -> tuple[Technique, ...]:
        """The distinct techniques of all units."""
        found: list[Technique] = []
        for unit in self._units.values():
            if unit.technique not in found:
                found.append(unit.technique)
        return tuple(found) or (self.technique,)

    @property
    def name(self) -> str:
        """The name of the technique, followed by those of units that use others."""
        others = {
            unit: each.technique.name
            for unit, each in self._units.items()
            if each.technique.name != self.technique.name
        }
        return ", ".join((self.technique.name, *(f"{unit}: {name}" for unit, name in others.items())))

    def producer_of(self, stream: str) -> UnitRecovery | None:
        """Return the recovery of the unit that makes a stream; None for a source."""
        return self._units.get(self.network.producer(stream))

    def has_equals(self, stream: str) -> bool:
        """Return True if a stream can be read from two equal nodes."""
        producer = self.producer_of(stream)
        return producer is not None and producer.technique.replicas is Replicas.EQUALS

    # -- outputs -----------------------------------------------------------------------------------------------

    def destinations(self, stream: str) -> dict[str, RowStage]:
        """Return the consumers of a stream, with the stage that each one wants.

        If both replicas of a unit read the stream, both are included.
        """
        known = self._destinations.get(stream)
        if known is None:
            consumers = self.network.consumers[stream]
            names = both(consumers, [each for each in consumers if self._reads_twice(each)])
            known = {each: self._reader(stream, each).retention for each in names}
            self._destinations[stream] = known
        return known

    def reads_twice(self, consumers: Iterable[str]) -> bool:
        """Return True if some of these consumers are replicas, which can be away forever."""
        return any(self._reads_twice(unit_of(each)) for each in consumers)

    def is_equal(self, consumer: str) -> bool:
        """Return True if a destination is one of a pair of equals."""
        unit = self._units.get(unit_of(consumer))
        return unit is not None and unit.technique.replicas is Replicas.EQUALS

    def retains_for_states(self, stream: str) -> bool:
        """Return True if consumers' states depend on rows of a stream. Such rows do not block the producer."""
        return any(self._reader(stream, each).causes is not None for each in self.network.consumers[stream])

    def _reads_twice(self, consumer: str) -> bool:
        unit = self._units.get(consumer)
        return unit is not None and unit.technique.replicas.both_read

    def _reader(self, stream: str, consumer: str) -> Technique:
        """Return the technique of a consumer. For a sink, return that of the unit before it."""
        unit = self._units.get(unit_of(consumer)) or self.producer_of(stream)
        return self.technique if unit is None else unit.technique

    # -- the controller ------------------------------------------------------------------------------------------

    def plan(self) -> RecoveryPlan:
        replicas = {
            unit: each.technique.replicas for unit, each in self._units.items() if each.technique.replicas.paired
        }
        histories = [unit for unit, each in self._units.items() if each.keeps_history]
        return RecoveryPlan(replicas, self._pair_plan(), histories)

    def _pair_plan(self) -> PairPlan | None:
        placings = [each.pairs for each in self.techniques if each.pairs is not None]
        if not placings:
            return None
        network = self.network
        alone = [plan.name for plan in network.units if plan.name not in network.parts]
        chain = {**network.parts, **{unit: place for place, unit in enumerate(alone)}}
        return PairPlan(
            chain,
            network.levels,
            max(each.standby_nodes for each in placings),
            max(each.catch_up_after_s for each in placings),
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _resolved(self, plan: UnitPlan) -> UnitRecovery:
        """Resolve the technique of a unit. The units that feed it must be resolved first."""
        network = self.network
        technique = network.techniques.get(plan.name, self.technique)
        # Rows that come again with new numbers cannot be told from others. The same holds for their results.
        feeders = (self._units.get(network.producer(stream)) for stream in plan.inputs)
        is_fed_anew = any(feeder is not None and feeder.numbers_anew for feeder in feeders)
        arbitrary = plan.operator_class is OperatorClass.ARBITRARY
        recordable = arbitrary and plan.is_recordable and not is_fed_anew
        keeps_events = recordable and technique.events is EventsAt.CONTROLLER
        records_events = arbitrary and technique.events is EventsAt.STANDBY
        recorded = technique.causes is not None and technique.causes.recorded
        checkpoints = technique.stores is Storage.CHECKPOINTS
        return UnitRecovery(
            technique,
            keeps_events,
            recorded and any(node.specification.keeps_phases for node in plan.operators),
            records_events,
            numbers_anew=technique.numbering is Numbering.ANEW
            or is_fed_anew
            or (arbitrary and not keeps_events and not records_events),
            numbers_anew_when_resumed=checkpoints and plan.name in network.units_behind_chance,
        )
