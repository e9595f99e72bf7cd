"""Aggregates over one window per key that never ends, emitted when a trigger says so.

Only keys that had rows since they were last emitted are emitted. The time of a result is the boundary of a trigger
of event time, and otherwise the latest time of a row so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .aggregates import AggregatedColumns, Aggregation
from .interface import OperatorSpecification
from .keys import check_keys, key_codes, with_plain_keys
from .row_times import EARLIEST_US, running_maxima, times_of
from .time_windows import WINDOW_END

_ROWS: Final = "__rows"
_Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AggregateGlobally(OperatorSpecification):
    kind: ClassVar[str] = "global"
    judges_times: ClassVar[bool] = True
    bounds_causes = False
    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    #: The trigger: every so many rows of a key, at multiples of an event time, or after a time of the clock.
    every_rows: int | None = None
    every_us: int | None = None
    clock_us: int | None = None
    #: True if the accumulators of a key begin anew after each result.
    purge: bool | None = None
    lateness_us: int | None = None

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.ARBITRARY if self.wants_time else OperatorClass.DETERMINISTIC

    @property
    def wants_time(self) -> bool:
        return self.clock_us is not None

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        check_keys(self.keys, stream)
        if WINDOW_END in self.keys:
            raise InvalidQuery(
                f"a global window has a column {WINDOW_END!r} of its own: rename the key with select"
            )
        fields = [stream.schema.field(key) for key in self.keys]
        fields += [pa.field(WINDOW_END, TIME)]
        fields += [pa.field(each.name, each.result_type(stream)) for each in self.aggregations]
        return StreamType(pa.schema(fields), WINDOW_END)

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        return replace(together(inputs), lateness_us=0)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _GlobalWindows(self, inputs[0], self.output_type(inputs).schema, state)


class _GlobalWindows(Operator):
    """The running operator: it adds the rows up to the next result, then emits that. Its unit calls it."""

    def __init__(self, of: AggregateGlobally, stream: StreamType, schema: pa.Schema, state: OperatorState) -> None:
        self._of, self._stream, self._schema = of, stream, schema
        accumulators = [each for one in of.aggregations for each in one.accumulators(stream)]
        self._columns = AggregatedColumns(of.keys, accumulators, stream.time)
        self._keys = pa.schema([stream.schema.field(key) for key in of.keys])
        rows = Accumulator(_ROWS, "rows", pa.int64())
        self._groups = state.groups("groups", self._keys, [*accumulators, rows])
        # The keys that had rows since they were last emitted.
        self._changed = state.groups("changed", self._keys, [rows])
        # [latest time of a row, the told time at the last result of the clock]
        self._progress = state.cell("progress", [EARLIEST_US, None])

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        latest, since = self._progress.get()
        maxima = running_maxima(times_of(rows, self._stream.time), latest)
        self._progress.set([int(maxima[-1]), since])
        if self._of.every_rows is not None:
            return self._by_count(rows, maxima)
        if self._of.every_us is not None:
            return self._by_time(rows, maxima, latest)
        self._add(rows)
        return ()

    def on_time(self, now_us: int) -> Iterable[Rows]:
        latest, since = self._progress.get()
        assert self._of.clock_us is not None
        if since is None or since > now_us:
            self._progress.set([latest, now_us])
            return ()
        if now_us - since < self._of.clock_us:
            return ()
        self._progress.set([latest, now_us])
        return self._emit_changed(latest)

    def end(self, port: int) -> Iterable[Rows]:
        return self._emit_changed(self._progress.get()[0])

    def _by_count(self, rows: Rows, maxima: _Numbers) -> Iterable[Rows]:
        """Emit a key after each `every_rows` of its rows, in the order of the rows that complete them."""
        every = self._of.every_rows
        assert every is not None
        before, numbers = self._numbers(rows)
        fires = numbers % every == 0
        # Rows of a key up to its first result, then those up to its second, and so on.
        rounds = (numbers - 1) // every - before // every
        made: list[pa.Table] = []
        places: list[_Numbers] = []
        for number in range(int(rounds.max()) + 1):
            self._add(rows.filter(pa.array(rounds == number)))
            firing = np.flatnonzero((rounds == number) & fires)
            if len(firing):
                fired = with_plain_keys(rows.take(pa.array(firing)), self._of.keys)
                keys = pa.Table.from_batches([fired]).select(self._keys.names)
                made.append(self._results(keys, pa.array(maxima[firing]).cast(TIME), len(firing)))
                places.append(firing)
        if not made:
            return ()
        order = pa.array(np.argsort(np.concatenate(places)))
        batches: list[Rows] = pa.concat_tables(made).take(order).combine_chunks().to_batches()
        return batches

    def _by_time(self, rows: Rows, maxima: _Numbers, latest: int) -> Iterable[Rows]:
        """Emit the changed keys when the latest time, less the lateness, passes a multiple of `every_us`."""
        every, made = self._of.every_us or 1, list[Rows]()
        late = self._of.lateness_us or 0
        periods = (maxima - late) // every
        period = (latest - late) // every
        begins = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), len(periods)]
        for begin, end in pairwise(begins):
            if periods[begin] > period:
                made += self._emit_changed((period + 1) * every)
                period = int(periods[begin])
            self._add(rows.slice(begin, end - begin))
        return made

    def _add(self, rows: Rows) -> None:
        kept = with_plain_keys(self._columns.of(rows), self._of.keys)
        self._groups.add(0, kept)
        self._changed.add(0, kept)

    def _numbers(self, rows: Rows) -> tuple[_Numbers, _Numbers]:
        """Return for each row the number of rows of its key before the batch, and up to that row."""
        keys = with_plain_keys(rows.select(self._of.keys or [self._stream.time]), self._of.keys)
        codes = key_codes(keys.columns) if self._of.keys else np.zeros(rows.num_rows, np.int64)
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
        asked = pa.Table.from_batches([keys.take(pa.array(firsts))])
        before = compute.fill_null(self._groups.find(0, asked).column(_ROWS), 0).to_numpy()[codes]
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(firsts)))
        ranks = np.empty(rows.num_rows, np.int64)
        ranks[order] = np.arange(rows.num_rows) - starts[codes[order]]
        return before, before + ranks + 1

    def _emit_changed(self, time_us: int) -> list[Rows]:
        keys = self._changed.between(0, 1).select(self._keys.names)
        count = self._changed.size(0)
        if not count:
            return []
        if self._of.keys:
            keys = keys.take(compute.sort_indices(keys, [(key, "ascending") for key in self._of.keys]))
        table = self._results(keys, pa.array(np.full(count, time_us)).cast(TIME), count)
        batches: list[Rows] = table.combine_chunks().to_batches()
        return batches

    def _results(self, keys: pa.Table, times: pa.Array, count: int) -> pa.Table:
        """Return the results of distinct keys, which are then unchanged, and empty if they are purged."""
        asked = keys if self._of.keys else pa.table({_ROWS: np.zeros(count, np.int64)})
        found = self._groups.find(0, asked)
        columns = [
            *keys.columns,
            times,
            *(each.show(found.column, self._stream) for each in self._of.aggregations),
        ]
        self._changed.remove(0, asked)
        if self._of.purge:
            self._groups.remove(0, asked)
        return pa.Table.from_arrays(columns, schema=self._schema)
