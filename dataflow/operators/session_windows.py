"""Aggregates over sessions: rows of a key with less than a gap between them, merged when a row closes a gap.

A session is the time from its first row to a gap after its last. It is emitted, ordered by end and key, when a row
arrives that is later than its end by the allowed lateness. A row is late, and left out, if a session of that row
alone would be over and it belongs to no open session. All decisions are made row by row, so they do not depend on
how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .aggregates import AggregatedColumns, Aggregation
from .interface import OperatorSpecification
from .keys import key_codes, values_of_keys, with_plain_keys
from .open_sessions import OpenSessions, Session
from .row_times import EARLIEST_US, ENDED_US, times_of
from .time_windows import WINDOW_END, count_only, window_type

_SESSION: Final = "__session"
_FIRST: Final = "__first"
_LAST: Final = "__last"


@dataclass(frozen=True)
class AggregateSessions(OperatorSpecification):
    kind: ClassVar[str] = "sessions"
    judges_times: ClassVar[bool] = True
    operator_class = OperatorClass.DETERMINISTIC
    bounds_causes = False
    keys: tuple[str, ...]
    gap_us: int
    aggregations: tuple[Aggregation, ...]
    lateness_us: int = 0

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        return window_type(inputs[0], self.keys, self.aggregations)

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        return replace(together(inputs), lateness_us=0)

    def late_only(self) -> OperatorSpecification:
        return replace(self, aggregations=count_only())

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Sessions(self, inputs[0], self.output_type(inputs).schema, state)


class _Sessions(Operator):
    """The running operator: it numbers sessions, adds rows to their accumulators, and emits those that are over.

    The index of open sessions is built again from the accumulators after a restart. Its unit calls it, one batch
    at a time.
    """

    def __init__(self, of: AggregateSessions, stream: StreamType, schema: pa.Schema, state: OperatorState) -> None:
        self._of, self._stream, self._schema = of, stream, schema
        accumulators = [each for one in of.aggregations for each in one.accumulators(stream)]
        accumulators += [
            Accumulator(_FIRST, "min", TIME, stream.time),
            Accumulator(_LAST, "max", TIME, stream.time),
        ]
        self._merges = [(each.name, each.merge) for each in accumulators]
        self._columns = AggregatedColumns(of.keys, accumulators, stream.time)
        self._key_fields = [stream.schema.field(key) for key in of.keys]
        keys = pa.schema([*self._key_fields, pa.field(_SESSION, pa.int64())])
        self._groups = state.groups("sessions", keys, accumulators)
        # [latest time of a row, number of the last session]
        self._progress = state.cell("progress", [EARLIEST_US, 0])
        self._late = state.cell("late", 0)
        self._open = self._recovered()

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self.left_out = ()
        times = times_of(rows, self._stream.time)
        latest, last_number = self._progress.get()
        if len(times) and times[0] >= latest and (times[1:] >= times[:-1]).all():
            latest, last_number = int(times[-1]), self._add_ordered(rows, times, last_number)
        else:
            latest, last_number = self._add_disordered(rows, times, latest, last_number)
        self._progress.set([latest, last_number])
        return self._emit(latest - self._of.lateness_us)

    def end(self, port: int) -> Iterable[Rows]:
        return self._emit(ENDED_US)

    def _add_ordered(self, rows: Rows, times: np.ndarray[Any, Any], last_number: int) -> int:
        """Add rows in the order of their times, after all rows before. Return the number of the last session.

        None of them is late, and none merges sessions. So one look at the open sessions is enough for all rows of
        a key with less than a gap between them.
        """
        codes = key_codes([rows.column(key) for key in self._of.keys]) if self._of.keys else np.zeros(len(times))
        by_key = np.argsort(codes, kind="stable")
        codes, times = codes[by_key], times[by_key]
        starts = np.append(True, (codes[1:] != codes[:-1]) | (times[1:] - times[:-1] >= self._of.gap_us))
        begins = np.flatnonzero(starts)
        ends = np.append(begins[1:], len(times))
        firsts = by_key[begins]
        keys = values_of_keys(rows.take(pa.array(firsts)), self._of.keys)
        first_us, last_us = times[begins].tolist(), times[ends - 1].tolist()
        of_pieces = np.empty(len(begins), np.int64)
        # Sessions are numbered in the order of their first rows.
        for piece in np.argsort(firsts).tolist():
            key, time = keys[piece], first_us[piece]
            found = self._open.near(key, time, time - self._of.lateness_us)
            if found:
                (session,) = found
                session.last_us = last_us[piece]
            else:
                last_number += 1
                session = Session(key, last_number, time, last_us[piece])
                self._open.add(session)
            of_pieces[piece] = session.number
        numbers = np.empty(len(times), np.int64)
        numbers[by_key] = np.repeat(of_pieces, ends - begins)
        self._add(rows, numbers, 0, len(numbers))
        return last_number

    def _add_disordered(
        self, rows: Rows, times: np.ndarray[Any, Any], latest: int, last_number: int
    ) -> tuple[int, int]:
        """Add rows one by one. Return the latest time, and the number of the last session."""
        keys = values_of_keys(rows, self._of.keys)
        numbers = np.empty(rows.num_rows, np.int64)
        added = 0
        for at, (key, time) in enumerate(zip(keys, times.tolist(), strict=True)):
            latest = max(latest, time)
            watermark = latest - self._of.lateness_us
            found = self._open.near(key, time, watermark)
            if not found:
                if time + self._of.gap_us <= watermark:
                    numbers[at] = 0
                    continue
                last_number += 1
                found = [Session(key, last_number, time, time)]
                self._open.add(found[0])
            elif len(found) > 1:
                # The rows before this one are added first, so that sums are added in the order of rows.
                self._add(rows, numbers, added, at)
                added = at
                self._merge(found)
            session = found[0]
            session.first_us, session.last_us = min(session.first_us, time), max(session.last_us, time)
            numbers[at] = session.number
        self._add(rows, numbers, added, rows.num_rows)
        self._leave_out(rows, numbers)
        return latest, last_number

    def _add(self, rows: Rows, numbers: np.ndarray[Any, Any], begin: int, end: int) -> None:
        """Add the rows from `begin` to before `end` to their sessions. Number 0 stands for a late row."""
        kept = numbers[begin:end] > 0
        if not kept.any():
            return
        part = with_plain_keys(self._columns.of(rows.slice(begin, end - begin)), self._of.keys)
        part = part.append_column(_SESSION, pa.array(numbers[begin:end]))
        self._groups.add(0, part if kept.all() else part.filter(pa.array(kept)))

    def _merge(self, found: Sequence[Session]) -> None:
        """Merge the accumulators of several sessions into those of the first."""
        named = self._named(found)
        accumulated = self._groups.find(0, named)
        into = pa.array(np.zeros(len(found), np.int64))
        merged = accumulated.append_column(_SESSION, into).group_by(_SESSION, use_threads=False)
        table = merged.aggregate(self._merges).drop_columns([_SESSION])
        table = table.rename_columns([name for name, _ in self._merges])
        (first,) = named.slice(0, 1).combine_chunks().to_batches()
        (values,) = table.combine_chunks().to_batches()
        self._groups.put(
            0,
            pa.RecordBatch.from_arrays(
                [*first.columns, *values.columns], [*first.schema.names, *table.column_names]
            ),
        )
        self._groups.remove(0, named.slice(1))
        self._open.merge(found[0], found[1:])

    def _leave_out(self, rows: Rows, numbers: np.ndarray[Any, Any]) -> None:
        late = numbers == 0
        if late.any():
            self._late.set(self._late.get() + int(np.count_nonzero(late)))
            self.left_out = (rows.filter(pa.array(late)),)

    def _emit(self, watermark_us: int) -> Iterable[Rows]:
        over = self._open.over(watermark_us)
        if not over:
            return ()
        named = self._named(over)
        found = self._groups.find(0, named)
        columns = [named.column(key) for key in self._of.keys]
        columns.append(found.column(_FIRST))
        columns.append(pa.array([each.last_us + self._of.gap_us for each in over], pa.int64()).cast(TIME))
        columns += [each.show(found.column, self._stream) for each in self._of.aggregations]
        self._groups.remove(0, named)
        order = [(name, "ascending") for name in (WINDOW_END, *self._of.keys)]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        batches: list[Rows] = table.take(compute.sort_indices(table, order)).combine_chunks().to_batches()
        return batches

    def _named(self, sessions: Sequence[Session]) -> pa.Table:
        """Return the keys and numbers of sessions, as their accumulators are found."""
        columns = [
            pa.array([each.key[at] for each in sessions], field.type) for at, field in enumerate(self._key_fields)
        ]
        columns.append(pa.array([each.number for each in sessions], pa.int64()))
        return pa.Table.from_arrays(columns, [*self._of.keys, _SESSION])

    def _recovered(self) -> OpenSessions:
        sessions = OpenSessions(self._of.gap_us)
        table = self._groups.between(0, 1)
        columns = [table.column(_SESSION).to_pylist()]
        columns += [table.column(name).cast(pa.int64()).to_pylist() for name in (_FIRST, _LAST)]
        for key, number, first, last in zip(values_of_keys(table, self._of.keys), *columns, strict=True):
            sessions.add(Session(key, number, first, last))
        return sessions
