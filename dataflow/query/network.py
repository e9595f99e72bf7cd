"""Networks: the result of writing a query. An acyclic graph of operators, divided into HA units (SGuard 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from peacefs.dataflow.model.operator_class import OperatorClass, most_general
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.errors import InvalidQuery


@dataclass(frozen=True)
class SourceNode:
    name: str
    type: StreamType


@dataclass(frozen=True)
class OperatorNode:
    name: str
    unit: str
    specification: OperatorSpecification
    #: Names of the sources and operators whose streams it reads, in the order of its ports.
    inputs: tuple[str, ...]
    input_types: tuple[StreamType, ...]
    type: StreamType


@dataclass(frozen=True)
class SinkNode:
    name: str
    #: The operator or source whose stream it takes.
    input: str
    type: StreamType


@dataclass(frozen=True)
class UnitPlan:
    """The operators of one HA unit, inputs first, and the streams that cross its edge."""

    name: str
    operators: tuple[OperatorNode, ...]
    #: Streams from other units and sources, by the name of their producer.
    inputs: tuple[str, ...]
    #: Streams that other units or sinks read.
    outputs: tuple[str, ...]

    @cached_property
    def readers(self) -> Mapping[str, Sequence[tuple[OperatorNode, int]]]:
        """For each stream, the operators of the unit that read it, each with the port."""
        found: dict[str, list[tuple[OperatorNode, int]]] = {}
        for operator in self.operators:
            for port, name in enumerate(operator.inputs):
                found.setdefault(name, []).append((operator, port))
        return found

    @property
    def operator_class(self) -> OperatorClass:
        """The class of its most general operator."""
        return most_general(operator.specification.operator_class for operator in self.operators)

    @property
    def is_recordable(self) -> bool:
        """True if a replay of the same events gives the same rows."""
        return all(operator.specification.unrecorded is None for operator in self.operators)

    @property
    def wants_time(self) -> bool:
        return any(operator.specification.wants_time for operator in self.operators)


@dataclass(frozen=True)
class Network:
    """A query as one value: operators, divided into units, between sources and sinks.

    Units are ordered so that each one comes after those that feed it. `Query.network` creates it. Hosts, cores and
    admission read it; it never changes.
    """

    name: str
    sources: tuple[SourceNode, ...]
    operators: tuple[OperatorNode, ...]
    sinks: tuple[SinkNode, ...]
    #: For each unit that is a part of a stage: the index of the part, from 0.
    parts: Mapping[str, int] = field(default_factory=dict)
    #: The techniques of units that have their own.
    techniques: Mapping[str, Technique] = field(default_factory=dict)

    @property
    def operator_class(self) -> OperatorClass:
        """The class of the most general operator."""
        return most_general(operator.specification.operator_class for operator in self.operators)

    @cached_property
    def units(self) -> tuple[UnitPlan, ...]:
        """The HA units, each after those that feed it. Raises InvalidQuery if units feed each other in a cycle."""
        names = list(dict.fromkeys(operator.unit for operator in self.operators))
        plans = {name: self._plan(name) for name in names}
        feeds = {
            name: {self._unit_of[stream] for stream in plan.inputs if stream in self._unit_of}
            for name, plan in plans.items()
        }
        ordered: list[UnitPlan] = []
        while feeds:
            free = [name for name, before in feeds.items() if not before & feeds.keys()]
            if not free:
                raise InvalidQuery(
                    f"units {', '.join(map(repr, feeds))} feed each other: move an operator to another with unit()"
                )
            ordered += (plans[name] for name in free)
            for name in free:
                del feeds[name]
        return tuple(ordered)

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The names of units by level. A unit feeds only units of later levels."""
        level_of: dict[str, int] = {}
        for plan in self.units:
            feeders = (self._unit_of[stream] for stream in plan.inputs if stream in self._unit_of)
            level_of[plan.name] = max((level_of[feeder] + 1 for feeder in feeders), default=0)
        return tuple(
            tuple(name for name, level in level_of.items() if level == wanted)
            for wanted in range(max(level_of.values(), default=-1) + 1)
        )

    @cached_property
    def units_behind_chance(self) -> frozenset[str]:
        """The arbitrary units, and all units downstream of them. Their output differs from run to run."""
        found: set[str] = set()
        for plan in self.units:
            if plan.operator_class is OperatorClass.ARBITRARY or any(
                self._unit_of.get(stream) in found for stream in plan.inputs
            ):
                found.add(plan.name)
        return frozenset(found)

    def unit(self, name: str) -> UnitPlan:
        return next(plan for plan in self.units if plan.name == name)

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each stream, the sinks that read it and the units that read it from outside."""
        found: dict[str, list[str]] = {}
        for plan in self.units:
            for stream in plan.inputs:
                found.setdefault(stream, []).append(plan.name)
        for sink in self.sinks:
            found.setdefault(sink.input, []).append(sink_unit(sink.name))
        return {stream: tuple(readers) for stream, readers in found.items()}

    @property
    def producers(self) -> tuple[SourceNode | OperatorNode, ...]:
        return (*self.sources, *self.operators)

    @cached_property
    def types(self) -> Mapping[str, StreamType]:
        return {node.name: node.type for node in self.producers}

    def producer(self, stream: str) -> str:
        """Return the unit that makes a stream. For a source, return the name from `source_unit`."""
        return self._unit_of.get(stream) or source_unit(stream)

    @cached_property
    def _unit_of(self) -> Mapping[str, str]:
        return {operator.name: operator.unit for operator in self.operators}

    def _plan(self, unit: str) -> UnitPlan:
        operators = tuple(operator for operator in self.operators if operator.unit == unit)
        inside = {operator.name for operator in operators}
        reads = dict.fromkeys(name for operator in operators for name in operator.inputs)
        read_outside = {name for other in self.operators if other.unit != unit for name in other.inputs}
        read_outside |= {sink.input for sink in self.sinks}
        return UnitPlan(
            unit,
            operators,
            inputs=tuple(name for name in reads if name not in inside),
            outputs=tuple(operator.name for operator in operators if operator.name in read_outside),
        )


def source_unit(source: str) -> str:
    """Return the name under which a source takes part in the exchange."""
    return f"source {source}"


def sink_unit(sink: str) -> str:
    """Return the name under which a sink takes part in the exchange."""
    return f"sink {sink}"
