"""Resample: values of a stream at regular times, by key (Aurora's Resample).

For each key and each multiple of the interval since 1970 a row is emitted when a row comes at or after that time:
with the values of the last row up to it, or interpolated on a straight line between the rows around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import Operator, OperatorSpecification, Rows
from .row_times import batches_of, times_of
from .stamps import KeyedStamps


@dataclass(frozen=True)
class Resample(OperatorSpecification):
    kind: ClassVar[str] = "resample"
    operator_class = OperatorClass.CONVERGENT_CAPABLE
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    every_us: int
    method: Literal["last", "linear"]

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        stream.require([*self.keys, *self.columns], "resample")
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
    def __init__(self, of: Resample, time: str, schema: pa.Schema, state: OperatorState) -> None:
        self._of = of
        self._time = time
        self._schema = schema
        #: key -> [time, values ...] of the last row
        self._last = state.mapping("last")
        self._stamps = KeyedStamps()

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        emitted: list[list[Any]] = []
        times = times_of(rows, self._time).tolist()
        keys = [rows.column(key).to_pylist() for key in self._of.keys]
        columns = [rows.column(column).to_pylist() for column in self._of.columns]
        for at, time in enumerate(times):
            key = tuple(column[at] for column in keys)
            values = [column[at] for column in columns]
            before = self._last.get(key)
            if before is not None and time < before[0]:
                continue
            if before is not None:
                emitted += (
                    [*key, grid, *self._between(before, time, values, grid)]
                    for grid in self._grid(before[0], time)
                )
            elif time % self._of.every_us == 0:
                emitted.append([*key, time, *map(self._shown, values)])
            self._last[key] = [time, *values]
            self._stamps.replace(self.stamp, key)
        return batches_of(emitted, self._schema, self._time)

    def oldest(self, port: int) -> int | None:
        return self._stamps.oldest

    def _grid(self, after: int, until: int) -> range:
        every = self._of.every_us
        return range((after // every + 1) * every, until + 1, every)

    def _between(self, before: Sequence[Any], time: int, values: Sequence[Any], grid: int) -> list[Any]:
        if grid == time:
            return [self._shown(value) for value in values]
        if self._of.method == "last":
            return list(before[1:])
        part = (grid - before[0]) / (time - before[0])
        return [
            None if old is None or new is None else old + (new - old) * part
            for old, new in zip(before[1:], values, strict=True)
        ]

    def _shown(self, value: Any) -> Any:
        return value if self._of.method == "last" or value is None else float(value)
