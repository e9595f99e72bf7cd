"""The operators of a query while it is being written, and the checks that each call makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.model.timing import Timing
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.errors import InvalidQuery

from .alignment import align_unions
from .network import Network, OperatorNode, SinkNode, SourceNode
from .stages import Stage, expand, in_parts


def check_stream(purpose: str, stream: object) -> None:
    """Raise InvalidQuery unless this is a stream."""
    if not isinstance(stream, PlannedStream):
        raise InvalidQuery(f"{purpose} needs another stream, and not {stream!r}")


class PlannedStream:
    """A stream of a query: the output of a source or an operator, and the unit that its next operator joins."""

    def __init__(self, query: OperatorPlan, name: str, type: StreamType, unit: str, timing: Timing) -> None:
        self.query = query
        self.name = name
        self.type = type
        self.unit_name = unit
        self.timing = timing

    def add(
        self,
        specification: OperatorSpecification,
        others: tuple[PlannedStream, ...] = (),
        name: str | None = None,
        *,
        unit: str | None = None,
    ) -> Self:
        """Add an operator that reads this stream and `others`, and return its output."""
        made, unit = self.query.add_operator(specification, (self, *others), name, unit=unit)
        timing = specification.output_timing(self.timings(*others))
        return type(self)(self.query, made.name, made.type, unit, timing)

    def timings(self, *others: PlannedStream) -> list[Timing]:
        """Return the timing of this stream and of `others`."""
        return [self.timing, *(each.timing for each in others)]


class OperatorPlan:
    """The sources, operators and sinks of a query, by name. `Query` is one; its streams add operators."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InvalidQuery("a query needs a name: Query('logins')")
        self.name = name
        self._sources: dict[str, SourceNode] = {}
        self._operators: dict[str, OperatorNode] = {}
        self._sinks: dict[str, SinkNode] = {}
        # Units that run in parts, and units that have their own techniques.
        self._stages: dict[str, Stage] = {}
        self._techniques: dict[str, Technique] = {}

    def network(self) -> Network:
        """Return the query as one value. Raises InvalidQuery if something is missing."""
        operators = align_unions(self._operators.values())
        network = Network(self.name, tuple(self._sources.values()), operators, tuple(self._sinks.values()))
        whole = replace(
            expand(self.name, network.sources, network.operators, network.sinks, self._stages)
            if self._stages
            else network,
            techniques=in_parts(self._techniques, self._stages),
        )
        if not network.sinks:
            raise InvalidQuery(f"query {self.name!r} has no sink: end a stream with sink('name')")
        read = {name for operator in network.operators for name in operator.inputs}
        read |= {sink.input for sink in network.sinks}
        for node in network.producers:
            if node.name not in read:
                raise InvalidQuery(
                    f"nothing reads the stream of {node.name!r}: end it with sink('name') or remove it"
                )
        assert whole.units or not whole.operators
        return whole

    @property
    def operator_class(self) -> OperatorClass:
        """The class of its most general operator, which determines how a failure can affect the output."""
        return self.network().operator_class

    # -- for streams ----------------------------------------------------------------------------------

    def add_operator(
        self,
        specification: OperatorSpecification,
        inputs: tuple[PlannedStream, ...],
        name: str | None,
        *,
        unit: str | None = None,
    ) -> tuple[OperatorNode, str]:
        """Add an operator, and return it with its unit. `unit` is given if it begins or ends a stage."""
        for stream in inputs[1:]:
            check_stream(specification.kind, stream)
            if stream.query is not self:
                raise InvalidQuery(
                    f"{specification.kind} of streams of two queries, {self.name!r} and {stream.query.name!r}: "
                    "begin both at one query's sources"
                )
        types = tuple(stream.type for stream in inputs)
        made = specification.output_type(types)
        name = name or self._name_for(specification)
        self._free(name)
        if unit is None:
            unit = inputs[0].unit_name
            self._check_stage(specification, inputs)
        names = tuple(stream.name for stream in inputs)
        node = self._operators[name] = OperatorNode(name, unit, specification, names, types, made)
        return node, unit

    def operator(self, name: str) -> OperatorNode | None:
        """Return the operator that makes a stream; None for a source."""
        return self._operators.get(name)

    def stage_of(self, unit: str) -> Stage | None:
        """Return the stage that a unit belongs to; None if it does not run in parts."""
        return self._stages.get(unit)

    def put_in_stage(self, unit: str, stage: Stage) -> None:
        """Let a unit run in parts. Raises InvalidQuery if it already exists with other parts."""
        known = self._stages.get(unit)
        if known not in (None, stage) or (known is None and self._is_unit(unit)):
            raise InvalidQuery(
                f"query {self.name!r} has a unit {unit!r} already, which is partitioned otherwise: give the parts "
                "another name with partition(..., name=...)"
            )
        self._stages[unit] = stage

    def recover_by(self, unit: str, technique: Technique) -> None:
        """Give a unit its own technique. Raises InvalidQuery if it already has another one."""
        if not isinstance(technique, Technique):
            raise InvalidQuery(
                f"unit {unit!r}: a technique is wanted, as unit({unit!r}, technique=CEC()), and not {technique!r}"
            )
        if self._techniques.setdefault(unit, technique) != technique:
            raise InvalidQuery(
                f"unit {unit!r} is given two techniques, {self._techniques[unit].name} and {technique.name}: give "
                "it one, or name another unit"
            )

    def is_source(self, stream: str) -> bool:
        """Return True if a stream is a source, and not the output of an operator."""
        return stream in self._sources

    def add_sink(self, name: str, stream: PlannedStream) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidQuery("sink needs a name: sink('attacks')")
        if name in self._sinks:
            raise InvalidQuery(f"query {self.name!r} has a sink {name!r} already: give this one another name")
        self._sinks[name] = SinkNode(name, stream.name, stream.type)

    def _is_unit(self, name: str) -> bool:
        return name == self.name or any(node.unit == name for node in self._operators.values())

    def _check_stage(self, specification: OperatorSpecification, inputs: tuple[PlannedStream, ...]) -> None:
        stages = [self._stages.get(stream.unit_name) for stream in inputs]
        stage = stages[0]
        if any(other != stage for other in stages):
            raise InvalidQuery(
                f"{specification.kind} of streams that are not partitioned alike: give both the same "
                "partition(...), or merge() them before"
            )
        keys = getattr(specification, "keys", None)
        if stage is None or keys is None:
            return
        missing = [key for key in stage.keys if key not in keys]
        if missing:
            raise InvalidQuery(
                f"{specification.kind} in a stage that is partitioned by {names_of(stage.keys)} needs "
                f"{missing[0]!r} among its keys, so that all rows of a key are in one part: add it to key_by, or "
                "merge() before"
            )

    def _name_for(self, specification: OperatorSpecification) -> str:
        number = 1 + sum(node.specification.kind == specification.kind for node in self._operators.values())
        while (name := f"{specification.kind}-{number}") in self._operators:
            number += 1
        return name

    def _free(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidQuery(f"query {self.name!r} has a source or an operator named {name!r}: give it a name")
        if name in self._sources or name in self._operators:
            raise InvalidQuery(
                f"query {self.name!r} has a {name!r} already: give each source and operator its own name"
            )
