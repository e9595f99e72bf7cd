"""Aggregate functions as accumulators that can be merged: what a batch gives, how two merge, what is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.paged_groups import keeps
from peacefs.protocol.errors import InvalidQuery

Function = Literal["count", "sum", "min", "max", "mean"]
_Operation = Literal["rows", "values", "sum", "min", "max"]
#: The accumulators of each function: (name, what is kept).
_ACCUMULATORS: dict[Function, tuple[tuple[str, _Operation], ...]] = {
    "count": (("count", "rows"),),
    "sum": (("sum", "sum"),),
    "min": (("min", "min"),),
    "max": (("max", "max"),),
    "mean": (("sum", "sum"), ("number", "values")),
}


@dataclass(frozen=True)
class Aggregation:
    """One column of the result. Sums and means of floating-point numbers depend on the order of rows, in their
    last bits; all others do not."""

    function: Function
    column: str | None
    name: str

    def alias(self, name: str) -> Aggregation:
        """Give the column of the result another name."""
        return replace(self, name=name)

    def result_type(self, stream: StreamType) -> pa.DataType:
        if self.column is None:
            return pa.int64()
        stream.require([self.column], f"{self.function}({self.column!r})")
        kind = stream.schema.field(self.column).type
        if self.function in ("min", "max"):
            if not keeps(kind) or pa.types.is_fixed_size_binary(kind):
                raise InvalidQuery(f"{self.function}({self.column!r}) has type {kind}: it cannot be ordered")
            return kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidQuery(
                f"{self.function}({self.column!r}) needs a number; the column has type {kind}: cast it with select"
            )
        return pa.float64() if self.function == "mean" else _sum_type(kind)

    def accumulators(self, stream: StreamType) -> list[Accumulator]:
        return [
            Accumulator(f"{self.name}.{name}", operation, self._accumulator_type(name, stream), self.column)
            for name, operation in _ACCUMULATORS[self.function]
        ]

    def show(self, merged: Callable[[str], pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the column of the result, given the merged accumulators by name."""
        if self.function == "mean":
            total = merged(f"{self.name}.sum").cast(pa.float64())
            number = merged(f"{self.name}.number").cast(pa.float64())
            return compute.divide(total, compute.if_else(compute.equal(number, 0.0), None, number))
        ((name, _),) = _ACCUMULATORS[self.function]
        return merged(f"{self.name}.{name}")

    def _accumulator_type(self, name: str, stream: StreamType) -> pa.DataType:
        if name in ("count", "number"):
            return pa.int64()
        kind = stream.schema.field(self.column).type
        return kind if name in ("min", "max") else _sum_type(kind)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()


def check_keys(keys: Sequence[str], stream: StreamType) -> None:
    """Raise InvalidQuery unless a stream has these columns, of types by which groups can be kept."""
    stream.require(keys, "key_by")
    for key in keys:
        kind = stream.schema.field(key).type
        if not keeps(kind):
            raise InvalidQuery(f"key_by({key!r}): groups cannot be kept by type {kind}; cast it with select")
