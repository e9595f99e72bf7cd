"""The record of a query: which checkpoint each unit begins with, so that the query can be resumed.

The controller's host writes it beside the checkpoints. docs/dataflow.md describes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

import msgspec
import pyarrow as pa

from peacefs.dataflow.core.messages import CheckpointCost, CheckpointId, checkpoint_of, sequence_of
from peacefs.dataflow.limits import dataflow_incarnations_per_run_max
from peacefs.dataflow.operators.aggregates import Aggregation
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.operators.keyed_process import ProcessByKey
from peacefs.dataflow.operators.keyed_states import Declared
from peacefs.dataflow.operators.row_operators import name_of
from peacefs.dataflow.operators.sequenced import Sequenced
from peacefs.dataflow.query.network import Network, OperatorNode
from peacefs.protocol.errors import CheckpointDamaged, InvalidQuery

_FORMAT = 1


class UnitRecord(msgspec.Struct, frozen=True):
    incarnation: int
    sequence: int
    pages_written: int
    pages_referred: int
    bytes_written: int
    pause_us: int
    recorded_ms: int


class RunRecord(msgspec.Struct, frozen=True):
    format: int
    query: str
    technique: str
    #: How many times the query was started or resumed. Each run has a separate range of numbers for starts of
    #: units.
    runs: int
    #: The operators of each unit, in readable form.
    network: dict[str, list[str]]
    units: dict[str, UnitRecord]
    #: The named states of each keyed function, which a later version of the query may add to.
    states: dict[str, dict[str, str]] = {}

    @property
    def checkpoints(self) -> dict[str, CheckpointId]:
        return {name: checkpoint_of(unit.sequence) for name, unit in self.units.items()}

    @property
    def starts_before(self) -> int:
        """A number that is at least that of every start of a unit in an earlier run."""
        return (self.runs - 1) * dataflow_incarnations_per_run_max

    def resumed(self, network: Network) -> RunRecord:
        return msgspec.structs.replace(self, runs=self.runs + 1, states=states_of(network))

    def with_checkpoint(self, unit: str, checkpoint: CheckpointId, cost: CheckpointCost, now_ms: int) -> RunRecord:
        made = UnitRecord(
            checkpoint[0],
            sequence_of(checkpoint),
            cost.pages_written,
            cost.pages_referred,
            cost.bytes_written,
            cost.pause_us,
            now_ms,
        )
        return msgspec.structs.replace(self, units={**self.units, unit: made})

    def check(self, network: Network, technique: str) -> None:
        """Raise InvalidQuery, naming the difference, unless the record matches the network and the technique."""
        if self.technique != technique:
            raise InvalidQuery(
                f"query {self.query!r} was run by {self.technique}, and {technique} cannot continue from its "
                "record: resume it with the same technique, or start it in another directory"
            )
        mine = describe(network)
        for unit in {**self.network, **mine}:
            if self.network.get(unit) != mine.get(unit):
                raise InvalidQuery(
                    f"query {self.query!r} has changed: unit {unit!r} was {_shown(self.network.get(unit))} "
                    f"and is {_shown(mine.get(unit))}; begin it anew in another directory"
                )
        for node in network.operators:
            self._check_states(node)

    def _check_states(self, node: OperatorNode) -> None:
        """Accept states that were added and that keys from before have a value of; refuse other differences."""
        had, has = self.states.get(node.name, {}), _states(node)
        for name in {**had, **has}:
            if name not in had:
                if _declared(node)[name].can_be_added:
                    continue
                change = "was added without a default: declare it as Value(..., default=...)"
            elif name not in has:
                change = f"was {had[name]} and is not there: declare it again"
            elif had[name] != has[name]:
                change = f"was {had[name]} and is {has[name]}: keep it, and add another"
            else:
                continue
            raise InvalidQuery(
                f"query {self.query!r} has changed: state {name!r} of {node.name!r} {change}, or begin the query "
                "anew in another directory"
            )


def new_record(network: Network, technique: str) -> RunRecord:
    return RunRecord(_FORMAT, network.name, technique, 1, describe(network), {}, states_of(network))


def read_record(data: bytes) -> RunRecord:
    """Decode a record. Raises CheckpointDamaged if `data` is not a record."""
    try:
        record = msgspec.json.decode(data, type=RunRecord)
    except msgspec.DecodeError as error:
        raise CheckpointDamaged(f"the record of the query cannot be read: {error}") from None
    if record.format != _FORMAT:
        raise CheckpointDamaged(
            f"the record of the query has format {record.format}; this version reads {_FORMAT}"
        )
    return record


def describe(network: Network) -> dict[str, list[str]]:
    """Describe the operators of each unit: inputs, parameters and output columns."""
    return {
        plan.name: [
            f"{node.name}: {node.specification.kind}({_given(node)}) -> {_columns(network, node.name)}"
            for node in plan.operators
        ]
        for plan in network.units
    }


def states_of(network: Network) -> dict[str, dict[str, str]]:
    """Return the named states of each keyed function of a query."""
    return {node.name: states for node in network.operators if (states := _states(node))}


def _states(node: OperatorNode) -> dict[str, str]:
    return {name: str(declared) for name, declared in _declared(node).items()}


def _declared(node: OperatorNode) -> Mapping[str, Declared]:
    specification = node.specification
    inner = specification.inner if isinstance(specification, Sequenced) else specification
    return inner.function.states if isinstance(inner, ProcessByKey) else {}


def _given(node: OperatorNode) -> str:
    return ", ".join((*node.inputs, *_parameters(node.specification)))


def _parameters(specification: OperatorSpecification) -> Iterator[str]:
    """Yield the parameters of an operator. Of functions only the name, so that a function may be corrected."""
    for each in fields(cast(Any, specification)):
        if each.metadata.get("evolves"):
            continue
        value = getattr(specification, each.name)
        # An expression has no truth value.
        if value is not None and not (isinstance(value, tuple) and not value):
            yield f"{each.name}={_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, pa.Schema):
        return "[" + ", ".join(f"{field.name} {field.type}" for field in value) + "]"
    if isinstance(value, OperatorSpecification):
        return f"{value.kind}({', '.join(_parameters(value))})"
    if isinstance(value, Aggregation):
        return f"{value.function}({value.column or ''}) as {value.name}"
    return name_of(value) if callable(value) else str(value)


def _columns(network: Network, stream: str) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in network.types[stream].schema)


def _shown(operators: list[str] | None) -> str:
    return "not there" if operators is None else "; ".join(operators)
