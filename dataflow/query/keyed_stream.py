"""Streams whose rows are grouped, by columns and by windows, for one operator that follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from peacefs.dataflow.model.durations import Duration, interval, microseconds
from peacefs.dataflow.model.numbers import check_count
from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import names_of
from peacefs.dataflow.operators.aggregates import Aggregation
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.global_windows import AggregateGlobally
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.operators.join import PRESERVED, JoinWindow
from peacefs.dataflow.operators.keyed_process import KeyedFunction, ProcessByKey
from peacefs.dataflow.operators.resample import Resample
from peacefs.dataflow.operators.session_windows import AggregateSessions
from peacefs.dataflow.operators.table_join import JoinTable
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.protocol.errors import InvalidQuery

from .operator_plan import PlannedStream

StreamT = TypeVar("StreamT", bound=PlannedStream)
_Windows = Callable[[tuple[Aggregation, ...]], OperatorSpecification]


class KeyedStream(Generic[StreamT]):
    """A stream whose rows are grouped by columns."""

    def __init__(self, stream: StreamT, keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    def window(
        self,
        size: Duration,
        every: Duration | None = None,
        *,
        lateness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> WindowedStream[StreamT]:
        """Group rows by windows of time, of `size`, beginning at each multiple of `every`.

        A window is emitted when a row arrives that is later than its end by `lateness` (that of the source if not
        given), or, with `timeout`, when no row has arrived for that long. Rows that are older than the end of an
        emitted window are left out; `late()` of the result returns them.
        """
        size_us = microseconds(size, "window(size)")
        every_us = size_us if every is None else microseconds(every, "window(every)")
        late_us = self._lateness(lateness, "window")
        timeout_us = None if timeout is None else microseconds(timeout, "window(timeout)")
        return WindowedStream(
            self._stream,
            lambda aggregations: AggregateTimeWindows(
                self._keys, size_us, every_us, aggregations, late_us, timeout_us
            ),
        )

    def session_window(self, gap: Duration, *, lateness: Duration | None = None) -> WindowedStream[StreamT]:
        """Group rows of a key by sessions, in which successive rows are less than `gap` apart.

        A session ends `gap` after its last row. A row between two sessions merges them. Sessions are emitted, and
        rows are late, as with `window`.
        """
        gap_us, late_us = microseconds(gap, "session_window(gap)"), self._lateness(lateness, "session_window")
        return WindowedStream(
            self._stream, lambda aggregations: AggregateSessions(self._keys, gap_us, aggregations, late_us)
        )

    def count_window(
        self, size: int, every: int | None = None, *, timeout: Duration | None = None
    ) -> WindowedStream[StreamT]:
        """Group rows of a key by windows of `size` rows, with a new window every `every` rows."""
        every = size if every is None else every
        for each in (size, every):
            check_count(f"count_window({size!r}, every={every!r})", each, least=1)
        timeout_us = None if timeout is None else microseconds(timeout, "count_window(timeout)")
        return WindowedStream(
            self._stream,
            lambda aggregations: AggregateCountWindows(self._keys, size, every, aggregations, timeout_us),
        )

    def global_window(
        self,
        *,
        rows: int | None = None,
        every: Duration | None = None,
        clock: Duration | None = None,
        purge: bool = False,
    ) -> WindowedStream[StreamT]:
        """Group all rows of a key, and emit the aggregates so far whenever a trigger fires, and at the end.

        The trigger is one of: after each `rows` rows of a key, at each multiple of `every` of event time, or after
        `clock` of the time of day. The last two emit the keys that had rows since. `purge`: begin anew after each
        result.
        """
        if sum(each is not None for each in (rows, every, clock)) != 1:
            raise InvalidQuery("global_window needs one trigger: rows=100, every='10s' or clock='10s'")
        if rows is not None:
            check_count(f"global_window(rows={rows!r})", rows, least=1)
        every_us = None if every is None else microseconds(every, "global_window(every)")
        clock_us = None if clock is None else microseconds(clock, "global_window(clock)")
        late_us = self._stream.timing.lateness_us or None
        return WindowedStream(
            self._stream,
            lambda aggregations: AggregateGlobally(
                self._keys, aggregations, rows, every_us, clock_us, purge or None, late_us
            ),
        )

    def join(
        self,
        other: KeyedStream[StreamT],
        within: Duration | None = None,
        *,
        between: tuple[Duration, Duration] | None = None,
        how: Literal["inner", "left", "right", "full"] = "inner",
        name: str | None = None,
    ) -> StreamT:
        """Join rows of two streams that have equal keys and whose times are near.

        Either they differ by at most `within`, or the time of the other row minus that of this stream's row lies
        in `between`, as in `between=("-5s", "1 minute")`. `how`: also emit rows of the left stream, the right one
        or both that have no partner, with nulls, once none can come.
        """
        self._check_keys(other, "join")
        if how not in PRESERVED:
            raise InvalidQuery(f"join(how={how!r}): use 'inner', 'left', 'right' or 'full'")
        if (within is None) == (between is None):
            raise InvalidQuery("join needs either within='10s' or between=('-5s', '10s')")
        bounds = () if between is None else interval(between, "join(between)")
        within_us = max(map(abs, bounds)) if within is None else microseconds(within, "join(within)", least=0)
        lateness_us = max(each.lateness_us for each in self._stream.timings(other._stream))
        specification = JoinWindow(
            self._keys,
            within_us,
            bounds,
            None if how == "inner" else how,
            lateness_us or None,
            idle_of(self._stream, other._stream),
        )
        return self._stream.add(specification, (other._stream,), name)

    def join_table(
        self, table: KeyedStream[StreamT], *, how: Literal["inner", "left"] = "inner", name: str | None = None
    ) -> StreamT:
        """Join each row with the latest row of its key in a table that changes, as it was at the row's time.

        `how="left"`: a row whose key the table did not have then has nulls. Both streams must be in the order
        of their times; put `sort` before if they are not.
        """
        self._check_keys(table, "join_table")
        if how not in ("inner", "left"):
            raise InvalidQuery(f"join_table(how={how!r}): use 'inner' or 'left'")
        kept = None if how == "inner" else how
        specification = JoinTable(self._keys, kept, idle_of(self._stream, table._stream))
        return self._stream.add(specification, (table._stream,), name)

    def process(
        self, function: KeyedFunction, schema: Schema, *, time: str | None = None, name: str | None = None
    ) -> StreamT:
        """Apply a function with state and timers of each key. `schema` and `time`: those of its output."""
        if not isinstance(function, KeyedFunction):
            raise InvalidQuery(f"key_by(...).process needs a KeyedFunction, and not {function!r}")
        specification = ProcessByKey(
            self._keys,
            function,
            as_schema(schema),
            time or self._stream.type.time,
            function.described(),
            self._stream.timing.lateness_us or None,
        )
        return self._stream.add(specification, name=name)

    def resample(
        self, *columns: str, every: Duration, method: Literal["last", "linear"] = "last", name: str | None = None
    ) -> StreamT:
        """Give values at multiples of `every`: the last value so far, or interpolated between two rows."""
        specification = Resample(self._keys, columns, microseconds(every, "resample(every)"), method)
        return self._stream.add(specification, name=name)

    def _lateness(self, lateness: Duration | None, purpose: str) -> int:
        if lateness is None:
            return self._stream.timing.lateness_us
        return microseconds(lateness, f"{purpose}(lateness)", least=0)

    def _check_keys(self, other: object, purpose: str) -> None:
        if not isinstance(other, KeyedStream) or other._keys != self._keys:
            raise InvalidQuery(
                f"{purpose} needs a stream with the same keys: "
                f"{purpose}(other.key_by({names_of(self._keys)}), ...)"
            )


class WindowedStream(Generic[StreamT]):
    """A stream whose rows are grouped by windows."""

    def __init__(self, stream: StreamT, specification: _Windows) -> None:
        self._stream = stream
        self._specification = specification

    def aggregate(self, *aggregations: Aggregation, name: str | None = None, **named: Aggregation) -> StreamT:
        """Compute one row per window and key: `aggregate(count(), largest=max("bytes"))`."""
        for given in (*aggregations, *named.values()):
            if not isinstance(given, Aggregation):
                raise InvalidQuery(f"aggregate takes functions as count() and max('bytes'), and not {given!r}")
        every = (*aggregations, *(each.alias(alias) for alias, each in named.items()))
        if not every:
            raise InvalidQuery("aggregate needs a function: aggregate(count())")
        return self._stream.add(self._specification(every), name=name)


def idle_of(stream: PlannedStream, *others: PlannedStream) -> tuple[int | None, ...]:
    """Return for each stream after how long it is idle; nothing if none ever is."""
    idle: Any = tuple(each.idle_us for each in stream.timings(*others))
    return idle if any(idle) else ()
