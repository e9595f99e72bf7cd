"""Aggregates over windows of a number of rows, by key.

The first window of a key begins with its first row, so that a run that begins elsewhere has other windows: the
operator is deterministic and not convergent-capable. A window is emitted with its last row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .aggregates import Aggregation
from .interface import Operator, OperatorSpecification, Rows
from .row_times import batches_of, times_of


@dataclass(frozen=True)
class AggregateCountWindows(OperatorSpecification):
    kind: ClassVar[str] = "aggregate"
    keys: tuple[str, ...]
    size_rows: int
    advance_rows: int
    aggregations: tuple[Aggregation, ...]
    #: Emit the rows of a key whose window is open when no row of any key came for so long.
    timeout_us: int | None = None

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.DETERMINISTIC if self.timeout_us is None else OperatorClass.ARBITRARY

    @property
    def wants_time(self) -> bool:
        return self.timeout_us is not None

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        stream.require(self.keys, "key_by")
        fields = [stream.schema.field(key) for key in self.keys if key != stream.time]
        fields.append(stream.schema.field(stream.time))
        fields += [pa.field(each.name, each.result_type(stream)) for each in self.aggregations]
        return StreamType(pa.schema(fields), stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _CountWindows(self, inputs[0], self.output_type(inputs).schema, state)


class _CountWindows(Operator):
    def __init__(
        self, of: AggregateCountWindows, stream: StreamType, schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of = of
        self._time = stream.time
        self._schema = schema
        #: key -> [rows to leave out before the next window, [time, values ...] of each row of the open window]
        self._windows = state.mapping("windows")
        self._idle_since = state.cell("idle since", None)

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self._idle_since.set(None)
        emitted: list[list[Any]] = []
        times = times_of(rows, self._time).tolist()
        keys = zip(*(rows.column(key).to_pylist() for key in self._of.keys), strict=True)
        all_keys = list(keys) if self._of.keys else [()] * rows.num_rows
        columns = [
            rows.column(each.column).to_pylist() if each.column is not None else times
            for each in self._of.aggregations
        ]
        for key, time, *values in zip(all_keys, times, *columns, strict=True):
            skip, window = self._windows.get(key, (0, []))
            if skip:
                self._windows[key] = [skip - 1, window]
                continue
            window = [*window, [time, *values]]
            if len(window) == self._of.size_rows:
                emitted.append(self._result(key, window))
                skip = max(self._of.advance_rows - self._of.size_rows, 0)
                window = window[self._of.advance_rows :]
            self._windows[key] = [skip, window]
        return batches_of(emitted, self._schema, self._time)

    def on_time(self, now_us: int) -> Iterable[Rows]:
        since = self._idle_since.get()
        if since is None:
            self._idle_since.set(now_us)
            return ()
        assert self._of.timeout_us is not None
        if now_us - since < self._of.timeout_us:
            return ()
        emitted = [self._result(key, window) for key, (_, window) in self._windows.items() if window]
        self._windows.clear()
        self._idle_since.set(None)
        return batches_of(emitted, self._schema, self._time)

    def _result(self, key: tuple[Any, ...], window: Sequence[Sequence[Any]]) -> list[Any]:
        last = window[-1][0]
        columns = zip(*window, strict=True)
        next(columns)
        shown = [value for name, value in zip(self._of.keys, key, strict=True) if name != self._time]
        results = [each.of_values(values) for each, values in zip(self._of.aggregations, columns, strict=True)]
        return [*shown, last, *results]
