"""Aggregate functions as accumulators that can be merged: the value of a batch, the merge of two, and the result.

Integers are added exactly; a sum that does not fit into its column stops the query. Among floating-point numbers
NaN is the highest (decision 61).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Rows
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.paged_groups import keeps
from peacefs.protocol.errors import InvalidQuery

from .exact_decimals import DECIMAL_WORDS, DecimalSums, word_of
from .exact_sums import ExactSums, Words, high_part, low_part
from .value_order import has_order, order_of, values_of

Function = Literal["count", "sum", "min", "max", "mean"]
Merged = Callable[[str], pa.ChunkedArray]

#: A column that is computed from another has one of these prefixes and the other's name. No user's column name
#: begins like that.
_LOW: Final = "\0low "
_HIGH: Final = "\0high "
_ORDER: Final = "\0order "
_WORDS: Final = tuple(f"\0word {place} " for place in range(DECIMAL_WORDS))
_COMPUTED: Final = {_LOW: low_part, _HIGH: high_part, _ORDER: order_of} | {
    prefix: partial(word_of, place=place) for place, prefix in enumerate(_WORDS)
}


@dataclass(frozen=True)
class Aggregation:
    """One column of the result.

    The last bits of floating-point sums and means depend on the order of rows. All other results do not.
    """

    function: Function
    column: str | None
    name: str

    def alias(self, name: str) -> Aggregation:
        """Return the same aggregation with another name for its column."""
        return replace(self, name=name)

    def result_type(self, stream: StreamType) -> pa.DataType:
        if self.column is None:
            return pa.int64()
        stream.require([self.column], f"{self.function}({self.column!r})")
        kind = self._input_type(stream)
        if self.function in ("min", "max"):
            if not keeps(kind) or pa.types.is_fixed_size_binary(kind):
                raise InvalidQuery(f"{self.function}({self.column!r}) has type {kind}: it cannot be ordered")
            return kind
        if pa.types.is_decimal128(kind):
            return pa.float64() if self.function == "mean" else pa.decimal128(38, kind.scale)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidQuery(
                f"{self.function}({self.column!r}) needs a number; the column has type {kind}: cast it with select"
            )
        if self.function == "mean" or pa.types.is_floating(kind):
            return pa.float64()
        return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()

    def accumulators(self, stream: StreamType) -> list[Accumulator]:
        if self.column is None:
            return [Accumulator(f"{self.name}.count", "rows", pa.int64())]
        kind = self._input_type(stream)
        if self.function == "min" or self.function == "max":
            if has_order(kind):
                return [Accumulator(f"{self.name}.order", self.function, pa.int64(), _ORDER + self.column)]
            return [Accumulator(f"{self.name}.{self.function}", self.function, kind, self.column)]
        number = Accumulator(f"{self.name}.number", "values", pa.int64(), self.column)
        if pa.types.is_floating(kind):
            total = Accumulator(f"{self.name}.sum", "sum", pa.float64(), self.column)
            return [total] if self.function == "sum" else [total, number]
        if pa.types.is_decimal(kind):
            words = [
                Accumulator(f"{self.name}.word {place}", "part", pa.int64(), prefix + self.column)
                for place, prefix in enumerate(_WORDS)
            ]
            return [*words, number]
        if _is_narrow(kind):
            return [Accumulator(f"{self.name}.low", "part", pa.int64(), self.column), number]
        low = Accumulator(f"{self.name}.low", "part", pa.int64(), _LOW + self.column)
        return [low, Accumulator(f"{self.name}.high", "part", pa.int64(), _HIGH + self.column), number]

    def show(self, merged: Merged, stream: StreamType) -> pa.Array | pa.ChunkedArray:
        """Return the column of the result, given the merged accumulators by name.

        Raises OverflowError if a sum does not fit into its type.
        """
        if self.column is None:
            return merged(f"{self.name}.count")
        kind = self._input_type(stream)
        if self.function in ("min", "max"):
            if has_order(kind):
                return values_of(merged(f"{self.name}.order"), kind)
            return merged(f"{self.name}.{self.function}")
        if pa.types.is_floating(kind):
            total = merged(f"{self.name}.sum")
            return total if self.function == "sum" else self._mean_of(total, merged(f"{self.name}.number"))
        try:
            if pa.types.is_decimal(kind):
                return self._decimals(merged, kind.scale, self.result_type(stream))
            low, number = self._words(merged, "low"), self._words(merged, "number")
            high = low >> 32 if _is_narrow(kind) else self._words(merged, "high")
            sums = ExactSums(low & (2**32 - 1) if _is_narrow(kind) else low, high, number)
            return sums.means() if self.function == "mean" else sums.sums(self.result_type(stream))
        except OverflowError as error:
            raise OverflowError(f"{self.function}({self.column!r}): {error}") from None

    def _decimals(self, merged: Merged, scale: int, kind: pa.DataType) -> pa.Array:
        words = [self._words(merged, f"word {place}") for place in range(DECIMAL_WORDS)]
        sums = DecimalSums(words, self._words(merged, "number"), scale)
        return sums.means() if self.function == "mean" else sums.sums(kind)

    def _words(self, merged: Merged, name: str) -> Words:
        return compute.fill_null(merged(f"{self.name}.{name}"), 0).to_numpy()  # type: ignore[no-any-return]

    def _mean_of(self, total: pa.ChunkedArray, number: pa.ChunkedArray) -> pa.ChunkedArray:
        counts = number.cast(pa.float64())
        return compute.divide(total, compute.if_else(compute.equal(counts, 0.0), None, counts))

    def _input_type(self, stream: StreamType) -> pa.DataType:
        return stream.schema.field(self.column).type


def _is_narrow(kind: pa.DataType) -> bool:
    """Return True if the sum of the maximum number of values of a type fits into 64 bits."""
    return bool(kind.bit_width <= 32)


class AggregatedColumns:
    """The columns that accumulators read. Some of them are computed from a column of the rows."""

    def __init__(self, keys: Sequence[str], accumulators: Iterable[Accumulator], otherwise: str) -> None:
        """`otherwise`: the column to use if the accumulators read none, so that rows can be counted."""
        read = (each.column for each in accumulators if each.column is not None)
        self._names = list(dict.fromkeys([*keys, *read])) or [otherwise]

    def of(self, rows: Rows) -> Rows:
        columns = [_column(rows, name) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, names=self._names)


def _column(rows: Rows, name: str) -> pa.Array:
    if name in rows.schema.names:
        return rows.column(name)
    for prefix, compute_from in _COMPUTED.items():
        if name.startswith(prefix):
            return compute_from(rows.column(name.removeprefix(prefix)))
    raise AssertionError(f"there is no column {name}")
