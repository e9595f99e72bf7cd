"""Partitioned stages: operators that run as several units, each with a share of the keys (Flux 4).

The user writes `partition` and `merge`, and `expand` makes a network with one unit per part. It adds the
splitting edge to the units before a stage, and the merging edge to those after it. The result is an ordinary
network. So every host can run it, with every technique that fits its operators.

    source -> query [number, route, part 0, part 1] -> stage[0] [merge, ...] -> behind [merge]
                                                    -> stage[1] [merge, ...] ->
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.operators.key_hashes import check_hashed
from peacefs.dataflow.operators.merge import Merge
from peacefs.dataflow.operators.partition import NumberRows, Route, TakePart
from peacefs.dataflow.operators.sequenced import Sequenced
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .network import Network, OperatorNode, SinkNode, SourceNode

Value = TypeVar("Value")


@dataclass(frozen=True)
class Stage:
    """How a unit is divided into parts: rows with equal values in `keys` belong to the same part."""

    keys: tuple[str, ...]
    parts: int


class _Boundary(OperatorSpecification):
    """A place in a query where a stage begins or ends. `expand` replaces it by other operators."""

    operator_class = OperatorClass.DETERMINISTIC

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        raise AssertionError(f"{self.kind} is to be expanded")


@dataclass(frozen=True)
class Partition(_Boundary):
    """Distributes the rows of a stream over the parts of a stage, by keys."""

    kind: ClassVar[str] = "partition"
    stage: Stage
    #: The unit that splits a stream that comes from no stage.
    unit_before: str
    grain_rows: int
    grain_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        check_hashed(self.stage.keys, stream, "partition")
        return stream


@dataclass(frozen=True)
class MergeParts(_Boundary):
    """Merges the rows of all parts of a stage into one stream."""

    kind: ClassVar[str] = "merge"

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        return inputs[0]


def part_name(name: str, part: int) -> str:
    """Return the name of a part of a unit, or of an operator in it."""
    return f"{name}[{part}]"


def expand(
    name: str,
    sources: Sequence[SourceNode],
    operators: Sequence[OperatorNode],
    sinks: Sequence[SinkNode],
    stages: Mapping[str, Stage],
) -> Network:
    """Return the network of a query in which the units in `stages` run in parts."""
    expansion = _Expansion(sources, stages)
    for node in operators:
        expansion.add(node)
    units = {node.unit for node in expansion.made.values()}
    named = {part_name(unit, part): part for unit, stage in stages.items() for part in range(stage.parts)}
    parts = {unit: part for unit, part in named.items() if unit in units}
    return Network(name, tuple(sources), tuple(expansion.made.values()), tuple(sinks), parts)


def in_parts(values: Mapping[str, Value], stages: Mapping[str, Stage]) -> dict[str, Value]:
    """Copy each unit's value to its parts, if the unit runs in parts."""
    return {
        name: value
        for unit, value in values.items()
        for name in ([part_name(unit, part) for part in range(stages[unit].parts)] if unit in stages else [unit])
    }


class _Expansion:
    def __init__(self, sources: Sequence[SourceNode], stages: Mapping[str, Stage]) -> None:
        self._stages = stages
        self._types = {source.name: source.type for source in sources}
        # The unit of each operator as the user wrote it; None for a source.
        self._units: dict[str, str | None] = {source.name: None for source in sources}
        self.made: dict[str, OperatorNode] = {}

    def add(self, node: OperatorNode) -> None:
        match node.specification:
            case Partition() as partition:
                self._partition(node, partition)
            case MergeParts():
                self._make(node.name, node.unit, Merge(strips=True), self._instances(node.inputs[0]))
            case _ if node.unit in self._stages:
                for part in range(self._stages[node.unit].parts):
                    inputs = [self._input(node, name, part) for name in node.inputs]
                    unit, made = part_name(node.unit, part), part_name(node.name, part)
                    self._make(made, unit, Sequenced(node.specification), inputs)
            case _:
                self._make(node.name, node.unit, node.specification, node.inputs)
        self._units[node.name] = node.unit

    def _partition(self, node: OperatorNode, partition: Partition) -> None:
        """Add the splitting edge to each unit that makes the stream, and the merging edge to each part."""
        (stream,) = node.inputs
        before, parts = self._stage(stream), range(partition.stage.parts)
        shares: list[list[str]] = [[] for _ in parts]
        for at, instance in enumerate(self._instances(stream)):
            # Rows of a source are split in the unit at the beginning of the query.
            unit = partition.unit_before if before is None else self.made[instance].unit
            label = node.name if before is None else part_name(node.name, at)
            if before is None:
                number = NumberRows(partition.grain_rows, partition.grain_us)
                instance = self._make(f"{label} numbers", unit, number, [instance])
            route = Route(partition.stage.keys, partition.stage.parts)
            routed = self._make(f"{label} routes", unit, route, [instance])
            for part in parts:
                share = self._make(f"{label} to {part_name(node.unit, part)}", unit, TakePart(part), [routed])
                shares[part].append(share)
        for part in parts:
            self._make(part_name(node.name, part), part_name(node.unit, part), Merge(), shares[part])

    def _input(self, node: OperatorNode, stream: str, part: int) -> str:
        """Return the stream of a part. If it comes from another unit, restore its grains first."""
        instance = part_name(stream, part)
        if self._units[stream] == node.unit:
            return instance
        again = f"{stream} in {part_name(node.unit, part)}"
        if again not in self.made:
            self._make(again, part_name(node.unit, part), Merge(), [instance])
        return again

    def _stage(self, stream: str) -> Stage | None:
        unit = self._units[stream]
        return None if unit is None else self._stages.get(unit)

    def _instances(self, stream: str) -> list[str]:
        stage = self._stage(stream)
        return [stream] if stage is None else [part_name(stream, part) for part in range(stage.parts)]

    def _make(self, name: str, unit: str, specification: OperatorSpecification, inputs: Sequence[str]) -> str:
        types = tuple(self._types[each] for each in inputs)
        self._types[name] = specification.output_type(types)
        self.made[name] = OperatorNode(name, unit, specification, tuple(inputs), types, self._types[name])
        return name
