"""Aggregates over windows of a number of rows, by key.

Rows of each key are counted. Each row belongs to a *pane*, the largest number of rows that no window splits.
Accumulators are kept per key and pane, and the row that completes a window merges its panes. All work is done per
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.phases import Phases, last_of_keys
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .aggregates import AggregatedColumns, Aggregation
from .interface import OperatorSpecification
from .keys import check_keys, key_codes, with_plain_keys
from .stamps import earliest

_PANE = "__pane"
_WINDOW = "__window"
_LAST = "__last"
_ROWS = "__rows"
_STAMP = "__stamp"
# `oldest` searches all panes for the oldest stamp. For every this many panes, one call skips the search.
_PANES_PER_CALL = 10_000
_Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AggregateCountWindows(OperatorSpecification):
    kind: ClassVar[str] = "aggregate"
    keys: tuple[str, ...]
    size_rows: int
    advance_rows: int
    aggregations: tuple[Aggregation, ...]
    #: If no row of any key arrives for this long, emit the rows of each key with an open window.
    timeout_us: int | None = None

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.DETERMINISTIC if self.timeout_us is None else OperatorClass.ARBITRARY

    @property
    def wants_time(self) -> bool:
        return self.timeout_us is not None

    @property
    def keeps_phases(self) -> bool:
        return True

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        check_keys(self.keys, stream)
        fields = [stream.schema.field(key) for key in self.keys if key != stream.time]
        fields.append(stream.schema.field(stream.time))
        fields += [pa.field(each.name, each.result_type(stream)) for each in self.aggregations]
        return StreamType(pa.schema(fields), stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _CountWindows(self, inputs[0], self.output_type(inputs).schema, state)


class _CountWindows(Operator):
    """The running operator: it numbers the rows of each key, and emits complete windows.

    Its state is the number of rows of each key, and the accumulators of each key and pane. A pane is removed when
    no later window contains it. Its output does not depend on how rows are cut into batches, unless there is a
    timeout. Its unit calls it, one batch at a time.
    """

    def __init__(
        self, of: AggregateCountWindows, stream: StreamType, schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of = of
        self._stream, self._time = stream, stream.time
        self._schema = schema
        self._pane_rows = gcd(of.size_rows, of.advance_rows)
        accumulators = [each for one in of.aggregations for each in one.accumulators(stream)]
        time_type = stream.schema.field(stream.time).type
        accumulators.append(Accumulator(_LAST, "last", time_type, stream.time))
        if state.keeps_stamps:
            accumulators.append(Accumulator(_STAMP, "min", pa.int64(), _STAMP))
        keys = pa.schema([stream.schema.field(key) for key in of.keys])
        self._merges = [(each.name, each.merge) for each in accumulators]
        read = (each for each in accumulators if each.column != _STAMP)
        self._columns = AggregatedColumns(of.keys, read, self._time)
        self._keeps_stamps = state.keeps_stamps
        self._oldest: int | None = None
        self._calls_before_look = 0
        # Number of rows so far, by key.
        self._counts = state.groups("counts", keys, [Accumulator(_ROWS, "rows", pa.int64())])
        self._panes = state.groups("panes", keys.append(pa.field(_PANE, pa.int64())), accumulators)
        self._idle_since = state.cell("idle since", None)
        # Keys that had rows since phases were last requested, with their number of rows.
        self._counted: list[pa.Table] = []
        self._cleared = False

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self._idle_since.set(None)
        rows = with_plain_keys(rows, self._of.keys)
        size, advance, pane = self._of.size_rows, self._of.advance_rows, self._pane_rows
        numbers = self._number(rows)
        kept = self._columns.of(rows).append_column(_PANE, pa.array(numbers // pane))
        if self._keeps_stamps:
            assert self.stamp is not None
            kept = kept.append_column(_STAMP, pa.array(np.full(rows.num_rows, self.stamp)))
            self._oldest = earliest(self._oldest, self.stamp)
        # Rows of windows that began before the operator began have negative numbers.
        between = (numbers % advance >= size) | (numbers < 0)
        if between.any():
            kept = kept.filter(pa.array(~between))
        if kept.num_rows:
            self._panes.add(0, kept)
        begins = numbers - (size - 1)
        complete = np.flatnonzero((begins >= 0) & (begins % advance == 0))
        return self._emit(rows, complete, begins[complete]) if len(complete) else ()

    def oldest(self, port: int) -> int | None:
        if self._calls_before_look > 0:
            self._calls_before_look -= 1
            return self._oldest
        panes = self._panes.between(0, 1)
        self._calls_before_look = panes.num_rows // _PANES_PER_CALL
        self._oldest = compute.min(panes.column(_STAMP)).as_py() if self._keeps_stamps else None
        return self._oldest

    def changed_phases(self) -> Phases | None:
        counted, self._counted = self._counted, []
        cleared, self._cleared = self._cleared, False
        keys = None
        if counted:
            keys = last_of_keys(counted)
            place = pa.array(keys.column(_ROWS).to_numpy() % self._of.advance_rows)
            keys = keys.set_column(keys.column_names.index(_ROWS), _ROWS, place)
        return Phases(cleared, keys, (self._idle_since.get(),))

    def begin_with(self, phases: Phases) -> None:
        if phases.values is not None:
            self._idle_since.set(phases.values[0])
        if phases.keys is None:
            return
        # Windows that are open at this point are not emitted. A key's row number is negative until its next window
        # begins.
        place = phases.keys.column(_ROWS).to_numpy()
        numbers = pa.array(np.where(place > 0, place - self._of.advance_rows, 0))
        keys = phases.keys.set_column(phases.keys.column_names.index(_ROWS), _ROWS, numbers)
        for rows in keys.combine_chunks().to_batches():
            self._counts.put(0, rows)

    def on_time(self, now_us: int) -> Iterable[Rows]:
        since = self._idle_since.get()
        if since is None:
            self._idle_since.set(now_us)
            return ()
        assert self._of.timeout_us is not None
        if now_us - since < self._of.timeout_us:
            return ()
        self._idle_since.set(None)
        return self._emit_open()

    def end(self, port: int) -> Iterable[Rows]:
        # No more rows will arrive, so treat the end like a timeout.
        return () if self._of.timeout_us is None else self._emit_open()

    def _emit_open(self) -> Iterable[Rows]:
        """Emit the rows of each key with an open window, and start all windows again."""
        panes = self._panes.between(0, 1)
        self._panes.clear()
        self._counts.clear()
        self._counted, self._cleared = [], True
        if not panes.num_rows:
            return ()
        by_key = [(name, "ascending") for name in (*self._of.keys, _PANE)]
        panes = panes.take(compute.sort_indices(panes, by_key))
        keys = list(self._of.keys) or [_WINDOW]
        if not self._of.keys:
            panes = panes.append_column(_WINDOW, pa.array(np.zeros(panes.num_rows, np.int64)))
        merged = panes.group_by(keys, use_threads=False).aggregate(self._merges)
        merged = merged.rename_columns([*keys, *(name for name, _ in self._merges)])
        return self._shown(merged, merged, merged.column(_LAST))

    def _number(self, rows: Rows) -> _Numbers:
        """Return the number of each row within its key, from 0."""
        # Without keys, use any column; its values are not read.
        keys = rows.select(list(self._of.keys) or [self._time])
        codes = key_codes(keys.columns) if self._of.keys else np.zeros(rows.num_rows, np.int64)
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
        asked = pa.Table.from_batches([keys.take(pa.array(firsts))])
        before = compute.fill_null(self._counts.find(0, asked).column(_ROWS), 0).to_numpy()
        self._counts.add(0, keys)
        if self._keeps_stamps:
            after = pa.array(before + np.bincount(codes, minlength=len(firsts)))
            named = asked.select(list(self._of.keys)) if self._of.keys else None
            self._counted.append(_with(named, _ROWS, after))
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(firsts)))
        ranks = np.empty(rows.num_rows, np.int64)
        ranks[order] = np.arange(rows.num_rows) - starts[codes[order]]
        numbers: _Numbers = before[codes] + ranks
        return numbers

    def _emit(self, rows: Rows, complete: _Numbers, begins: _Numbers) -> Iterable[Rows]:
        """Return a row for each window that a row has completed, in the order of those rows."""
        size, pane = self._of.size_rows, self._pane_rows
        per_window = size // pane
        windows = np.repeat(np.arange(len(complete)), per_window)
        panes = np.repeat(begins // pane, per_window) + np.tile(np.arange(per_window), len(complete))
        last = pa.Table.from_batches([rows.take(pa.array(complete))])
        keys = last.select(list(self._of.keys)).take(pa.array(windows)) if self._of.keys else None
        asked = _with(keys, _PANE, pa.array(panes))
        found = self._panes.find(0, asked).append_column(_WINDOW, pa.array(windows))
        merged = found.group_by(_WINDOW, use_threads=False).aggregate(self._merges)
        merged = merged.rename_columns([_WINDOW, *(name for name, _ in self._merges)])
        over = min(self._of.advance_rows, size) // pane
        self._panes.remove(0, asked.filter(pa.array(np.tile(np.arange(per_window) < over, len(complete)))))
        return self._shown(last, merged, last.column(self._time))

    def _shown(self, keys: pa.Table, merged: pa.Table, times: pa.ChunkedArray) -> Iterable[Rows]:
        columns = [keys.column(key) for key in self._of.keys if key != self._time]
        columns += [times, *(each.show(merged.column, self._stream) for each in self._of.aggregations)]
        batches: list[Rows] = pa.Table.from_arrays(columns, schema=self._schema).combine_chunks().to_batches()
        return batches


def _with(table: pa.Table | None, name: str, column: pa.Array) -> pa.Table:
    return pa.table({name: column}) if table is None else table.append_column(name, column)
