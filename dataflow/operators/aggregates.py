"""Aggregate functions as accumulators that can be merged: what a batch gives, how two merge, what is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.interface import Merge
from peacefs.protocol.errors import InvalidQuery

Function = Literal["count", "sum", "min", "max", "mean"]
#: The accumulators of each function: (name, the aggregation that makes it of rows, the one that merges it).
_ACCUMULATORS: dict[Function, tuple[tuple[str, str, Merge], ...]] = {
    "count": (("count", "count_all", "sum"),),
    "sum": (("sum", "sum", "sum"),),
    "min": (("min", "min", "min"),),
    "max": (("max", "max", "max"),),
    "mean": (("sum", "sum", "sum"), ("number", "count", "sum")),
}


@dataclass(frozen=True)
class Aggregation:
    """One column of the result. Counts, sums of whole numbers, minima and maxima do not depend on the order of
    rows; sums and means of floating-point numbers do, in their last bits."""

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
            if pa.types.is_nested(kind):
                raise InvalidQuery(f"{self.function}({self.column!r}) has type {kind}: it cannot be ordered")
            return kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidQuery(
                f"{self.function}({self.column!r}) needs a number; the column has type {kind}: cast it with select"
            )
        return pa.float64() if self.function == "mean" else _sum_type(kind)

    def accumulators(self, stream: StreamType) -> list[tuple[pa.Field, Merge]]:
        return [
            (pa.field(f"{self.name}.{name}", self._accumulator_type(name, stream)), merge)
            for name, _, merge in _ACCUMULATORS[self.function]
        ]

    def over_rows(self) -> list[tuple[Any, str]]:
        """Return (column, aggregation) pairs for `Table.group_by`."""
        return [([] if how == "count_all" else self.column, how) for _, how, _ in _ACCUMULATORS[self.function]]

    def show(self, merged: Callable[[str], pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the column of the result, given the merged accumulators by name."""
        if self.function == "mean":
            total = merged(f"{self.name}.sum").cast(pa.float64())
            number = merged(f"{self.name}.number").cast(pa.float64())
            return compute.divide(total, compute.if_else(compute.equal(number, 0.0), None, number))
        ((name, _, _),) = _ACCUMULATORS[self.function]
        return merged(f"{self.name}.{name}")

    def of_values(self, values: Sequence[Any]) -> Any:
        """Return the result for the values of a window, None where a row has none."""
        if self.function == "count":
            return len(values)
        present = [value for value in values if value is not None]
        if not present:
            return None
        if self.function == "mean":
            return sum(present) / len(present)
        return {"sum": sum, "min": min, "max": max}[self.function](present)  # type: ignore[operator]

    def _accumulator_type(self, name: str, stream: StreamType) -> pa.DataType:
        if name in ("count", "number"):
            return pa.int64()
        kind = stream.schema.field(self.column).type
        return kind if name in ("min", "max") else _sum_type(kind)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()
