"""Aggregates over windows of time, by key, vectorised.

A window begins at a multiple of its advance since 1970. So two runs that begin at different rows have the same
windows, which makes the operator convergent-capable. Rows are aggregated per *pane*, the largest span of time that
no window splits. A window merges its panes and is emitted, ordered by key, when a row arrives that is later than
its end by the allowed lateness. A row that is older than the end of an emitted window is late, and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.phases import Phases
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .aggregates import AggregatedColumns, Aggregation
from .interface import OperatorSpecification
from .keys import check_keys, with_plain_keys
from .row_times import EARLIEST_US, Times, running_maxima, times_of
from .stamps import LatestStamp, earliest

WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class AggregateTimeWindows(OperatorSpecification):
    kind: ClassVar[str] = "aggregate"
    judges_times: ClassVar[bool] = True
    keys: tuple[str, ...]
    size_us: int
    advance_us: int
    aggregations: tuple[Aggregation, ...]
    lateness_us: int = 0
    #: If no row arrives for this long, emit the open windows.
    timeout_us: int | None = None

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.CONVERGENT_CAPABLE if self.timeout_us is None else OperatorClass.ARBITRARY

    @property
    def wants_time(self) -> bool:
        return self.timeout_us is not None

    @property
    def keeps_phases(self) -> bool:
        # Without a timeout, lateness follows from the rows alone.
        return self.timeout_us is not None

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        return window_type(inputs[0], self.keys, self.aggregations)

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        return replace(together(inputs), lateness_us=0)

    def late_only(self) -> OperatorSpecification:
        return replace(self, keys=(), aggregations=count_only())

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _TimeWindows(self, inputs[0], self.output_type(inputs).schema, state)


def window_type(stream: StreamType, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> StreamType:
    """Return the type of aggregates over windows that begin and end at a time."""
    check_keys(keys, stream)
    if stream.time in keys:
        raise InvalidQuery(f"key_by contains the time column {stream.time!r}: windows are what divides time")
    fields = [stream.schema.field(key) for key in keys]
    fields += [pa.field(WINDOW_START, TIME), pa.field(WINDOW_END, TIME)]
    fields += [pa.field(each.name, each.result_type(stream)) for each in aggregations]
    return StreamType(pa.schema(fields), WINDOW_END)


def count_only() -> tuple[Aggregation, ...]:
    """Return the cheapest aggregation, for windows of which only the late rows are wanted."""
    return (Aggregation("count", None, "count"),)


class _TimeWindows(Operator):
    """The running operator: it aggregates rows by pane, and emits windows that are over.

    Windows are emitted in the order of their ends, each once. A row is late if it is older than the end of a
    window that was over when the row arrived. Late rows are counted and left out. Its unit calls it, one batch at
    a time.
    """

    def __init__(
        self, of: AggregateTimeWindows, stream: StreamType, schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of = of
        self._stream, self._time = stream, stream.time
        self._schema = schema
        self._pane_us = gcd(of.size_us, of.advance_us)
        accumulators = [each for one in of.aggregations for each in one.accumulators(stream)]
        keys = pa.schema([stream.schema.field(key) for key in of.keys])
        self._groups = state.groups("panes", keys, accumulators)
        self._columns = AggregatedColumns(of.keys, accumulators, self._time)
        # [latest time of a row, end of the last emitted window, since when no row has arrived]
        self._progress = state.cell("progress", [EARLIEST_US, EARLIEST_US, None])
        self._late = state.cell("late", 0)
        # The oldest stamp of each pane, and the stamp of the latest row. After a restart a late row is late again:
        # the row that made it late is in a pane that stays at least as long as the late row's pane would.
        self._stamps: dict[int, int] = {}
        self._latest = LatestStamp()

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self.left_out = ()
        latest, closed, _ = self._progress.get()
        times = times_of(rows, self._time)
        maxima = running_maxima(times, latest)
        on_time = times >= np.maximum(self._closed_by(maxima), closed)
        if self.stamp is not None:
            self._latest.reach(self.stamp, int(times.max()))
        if not on_time.all():
            self._late.set(self._late.get() + int(np.count_nonzero(~on_time)))
            self.left_out = (rows.filter(pa.array(~on_time)),)
            rows, times = rows.filter(pa.array(on_time)), times[on_time]
        if rows.num_rows:
            self._merge(rows, times)
        latest = int(maxima[-1])
        return self._close(latest, max(closed, int(self._closed_by(maxima[-1:])[0])))

    def end(self, port: int) -> Iterable[Rows]:
        return self._close_all()

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def on_time(self, now_us: int) -> Iterable[Rows]:
        latest, closed, idle_since = self._progress.get()
        if idle_since is None:
            self._progress.set([latest, closed, now_us])
            return ()
        assert self._of.timeout_us is not None
        return self._close_all() if now_us - idle_since >= self._of.timeout_us else ()

    def oldest(self, port: int) -> int | None:
        return earliest(*self._stamps.values(), self._latest.stamp)

    def changed_phases(self) -> Phases | None:
        return Phases(values=tuple(self._progress.get())) if self._of.keeps_phases else None

    def begin_with(self, phases: Phases) -> None:
        assert phases.values is not None
        self._progress.set(list(phases.values))

    def _closed_by(self, times: Times) -> Times:
        """For each of `times`, return the end of the last window that is over."""
        started = (times - (self._of.size_us + self._of.lateness_us)) // self._of.advance_us
        return started * self._of.advance_us + self._of.size_us

    def _merge(self, rows: Rows, times: Times) -> None:
        rows = with_plain_keys(self._columns.of(rows), self._of.keys)
        panes = times // self._pane_us
        if (panes[1:] >= panes[:-1]).all():
            begins = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), len(panes)]
            for begin, end in pairwise(begins):
                self._add(int(panes[begin]), rows.slice(begin, end - begin))
        else:
            for pane in np.unique(panes):
                self._add(int(pane), rows.filter(pa.array(panes == pane)))

    def _add(self, pane: int, rows: Rows) -> None:
        self._groups.add(pane, rows)
        if self.stamp is not None:
            self._stamps[pane] = min(self._stamps.get(pane, self.stamp), self.stamp)

    def _close_all(self) -> Iterable[Rows]:
        latest, closed, _ = self._progress.get()
        panes = self._groups.buckets()
        if not panes:
            return ()
        # The last window that begins at or before the last pane.
        last = (panes[-1] * self._pane_us) // self._of.advance_us * self._of.advance_us + self._of.size_us
        return self._close(latest, max(closed, last))

    def _close(self, latest: int, until: int) -> Iterable[Rows]:
        """Emit the windows that end at or before `until` and were not emitted yet."""
        _, closed, _ = self._progress.get()
        self._progress.set([latest, until, None])
        if until <= closed:
            return ()
        emitted = [self._window(end) for end in self._ends(closed, until)]
        first = (until + self._of.advance_us - self._of.size_us) // self._pane_us
        self._groups.drop_before(first)
        self._stamps = {pane: stamp for pane, stamp in self._stamps.items() if pane >= first}
        return emitted

    def _ends(self, closed: int, until: int) -> list[int]:
        """Return the ends of windows that have rows, above `closed` and up to `until`."""
        size, advance = self._of.size_us, self._of.advance_us
        ends: set[int] = set()
        for pane in self._groups.buckets():
            begin = pane * self._pane_us
            # A window contains the pane if it begins after `begin - size` and at or before `begin`.
            first = max((begin - size) // advance + 1, (closed - size) // advance + 1)
            last = min(begin // advance, (until - size) // advance)
            ends.update(start * advance + size for start in range(first, last + 1))
        return sorted(ends)

    def _window(self, end: int) -> Rows:
        merged = self._groups.between((end - self._of.size_us) // self._pane_us, end // self._pane_us)
        columns = [merged.column(key) for key in self._of.keys]
        for edge in (end - self._of.size_us, end):
            columns.append(pa.repeat(pa.scalar(edge, TIME), merged.num_rows))
        columns += [each.show(merged.column, self._stream) for each in self._of.aggregations]
        window = pa.Table.from_arrays(columns, schema=self._schema)
        if self._of.keys:
            window = window.take(compute.sort_indices(window, [(key, "ascending") for key in self._of.keys]))
        (rows,) = window.combine_chunks().to_batches()
        return rows
