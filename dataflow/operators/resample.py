"""Resample: values of a stream at regular times, by key (Aurora's Resample).

For each key and each multiple of the interval since 1970, a row is emitted when a row at or after that time
arrives. It has the values of the last row up to that time, or values interpolated linearly between the rows around
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import OperatorSpecification
from .keys import check_keys, key_codes, with_plain_keys
from .row_times import Times, times_of
from .stamps import KeyedStamps


@dataclass(frozen=True)
class Resample(OperatorSpecification):
    kind: ClassVar[str] = "resample"
    judges_times: ClassVar[bool] = True
    operator_class = OperatorClass.CONVERGENT_CAPABLE
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    every_us: int
    method: Literal["last", "linear"]

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        check_keys(self.keys, stream)
        stream.require(self.columns, "resample")
        if self.method not in ("last", "linear"):
            raise InvalidQuery(f"resample has no method {self.method!r}: use 'last' or 'linear'")
        fields = [stream.schema.field(name) for name in (*self.keys, stream.time)]
        for column in self.columns:
            field = stream.schema.field(column)
            if self.method == "linear":
                if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                    raise InvalidQuery(
                        f"resample of {column!r} on a line needs a number; it has type {field.type}: use 'last'"
                    )
                field = pa.field(column, pa.float64())
            fields.append(field)
        return StreamType(pa.schema(fields), stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Resample(self, inputs[0].time, self.output_type(inputs).schema, state)


class _Resample(Operator):
    """The running operator: it compares each row with the previous row of its key, for a whole batch at once.

    For that, the last rows of earlier batches are put before those of the batch, late rows are left out, and the
    rest is sorted by key.
    """

    def __init__(self, of: Resample, time: str, schema: pa.Schema, state: OperatorState) -> None:
        self._of = of
        self._time = time
        self._schema = schema
        #: key -> [time, values ...] of the last row
        self._last = state.mapping("last")
        self._late = state.cell("late", 0)
        self._stamps = KeyedStamps()

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        rows = with_plain_keys(rows, self._of.keys)
        groups, of_row = _groups(rows, self._of.keys)
        known = self._last.find_all(groups)
        had = [(group, last) for group, last in enumerate(known) if last is not None]
        begin = len(had)
        of = np.concatenate([np.array([group for group, _ in had], np.int64), of_row])
        times = np.concatenate([np.array([last[0] for _, last in had], np.int64), times_of(rows, self._time)])
        order = _in_order(of, times)
        self._late.set(self._late.get() + len(of) - len(order))
        # Neighbours in `order`. The first row of a key has no previous row.
        same = of[order[1:]] == of[order[:-1]]
        before, after = order[:-1][same], order[1:][same]
        first = order[np.concatenate([[True], ~same])]
        values = [self._values(rows, name, at, had) for at, name in enumerate(self._of.columns)]
        self._keep(groups, of, times, order[np.concatenate([~same, [True]])], begin, values)
        return self._emit(rows, begin, times, before, after, first[first >= begin], values)

    def oldest(self, port: int) -> int | None:
        return self._stamps.oldest

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def _values(self, rows: Rows, name: str, at: int, had: Sequence[tuple[int, Any]]) -> pa.Array:
        column = rows.column(name)
        return pa.concat_arrays([pa.array([last[1 + at] for _, last in had], column.type), column])

    def _keep(
        self,
        groups: Sequence[Any],
        of: NDArray[np.int64],
        times: Times,
        last: NDArray[np.int64],
        begin: int,
        values: Sequence[pa.Array],
    ) -> None:
        """Remember the last row of each key in the batch."""
        last = last[last >= begin]
        chosen = pa.array(last)
        columns = zip(times[last].tolist(), *(_kept(each.take(chosen)) for each in values), strict=True)
        for group, kept in zip(of[last].tolist(), columns, strict=True):
            self._last[groups[group]] = list(kept)
            self._stamps.replace(self.stamp, groups[group])

    def _emit(
        self,
        rows: Rows,
        begin: int,
        times: Times,
        before: NDArray[np.int64],
        after: NDArray[np.int64],
        first: NDArray[np.int64],
        values: Sequence[pa.Array],
    ) -> Iterable[Rows]:
        every = self._of.every_us
        begun = times[before] // every
        counts = times[after] // every - begun
        first = first[times[first] % every == 0]
        # If the first row of a key is at a regular time, treat it as its own previous row.
        old = np.concatenate([np.repeat(before, counts), first])
        new = np.concatenate([np.repeat(after, counts), first])
        steps = np.arange(len(old) - len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        grid = np.concatenate([(np.repeat(begun, counts) + 1 + steps) * every, times[first]])
        if not len(grid):
            return ()
        order = np.lexsort((grid, new))
        old, new, grid = old[order], new[order], grid[order]
        keys = pa.array(new - begin)
        arrays = [rows.column(key).take(keys) for key in self._of.keys]
        arrays.append(pa.array(grid).cast(self._schema.field(len(arrays)).type))
        for each in values:
            if self._of.method == "last":
                arrays.append(each.take(pa.array(np.where(grid == times[new], new, old))))
            else:
                arrays.append(_on_a_line(each, old, new, grid, times))
        return (pa.RecordBatch.from_arrays(arrays, schema=self._schema),)


def _groups(rows: Rows, keys: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct keys of rows, and the index of each row's key."""
    codes = key_codes([rows.column(key) for key in keys]) if keys else np.zeros(rows.num_rows, np.int64)
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    shown = rows.select(list(keys)).take(pa.array(first))
    columns = [_kept(column) for column in shown.columns]
    return (list(zip(*columns, strict=True)) if columns else [()]), of_row.reshape(-1)


def _kept(column: pa.Array) -> list[Any]:
    """Return values as they are stored. Times become integers, since Python's types lose digits."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _in_order(of: NDArray[np.int64], times: Times) -> NDArray[np.int64]:
    """Return rows by key in the order of arrival, without those that are earlier than a previous row."""
    order = np.argsort(of, kind="stable")
    # Ranks are below the number of rows, so that all ranks of a key are above those of the keys before it.
    ranks = np.unique(times, return_inverse=True)[1].reshape(-1)[order]
    placed = of[order] * len(times) + ranks
    found: NDArray[np.int64] = order[placed == np.maximum.accumulate(placed)]
    return found


def _on_a_line(
    values: pa.Array, old: NDArray[np.int64], new: NDArray[np.int64], grid: Times, times: Times
) -> pa.Array:
    """Interpolate values linearly between two rows each.

    At the time of the later row, the value of that row is used.
    """
    gone = values.is_null().to_numpy(zero_copy_only=False)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "u" or (numbers.dtype.kind == "i" and _is_wide(numbers)):
        numbers = numbers.astype(np.float64)
    at_end = grid == times[new]
    between = np.where(at_end, 1, times[new] - times[old])
    part = (grid - times[old]) / between
    rise = numbers[new].astype(np.result_type(numbers, np.int64)) - numbers[old]
    shown = np.where(at_end, numbers[new].astype(np.float64), numbers[old] + rise * part)
    return pa.array(shown, pa.float64(), mask=np.where(at_end, gone[new], gone[old] | gone[new]))


def _is_wide(numbers: NDArray[Any]) -> bool:
    """Return True if the difference of two of the numbers may not fit into 64 bits."""
    return bool(int(numbers.min()) < -(2**62) or int(numbers.max()) > 2**62)
