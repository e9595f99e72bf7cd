"""Operators of dataflows, each with the SQL that defines it, for streams of `key`, `at` and `value`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa
from oracles import sql_streams as sql

from peacefs.dataflow import KeyedFunction, Value
from peacefs.dataflow import functions as F
from peacefs.dataflow.operators.keyed_process import KeyedContext
from peacefs.dataflow.query.streams import Stream

_SECOND = 1_000_000
_PARTS: dict[str, Any] = {"parts": 3, "grain_rows": 7, "grain": "3s"}


@dataclass(frozen=True)
class Judged:
    write: Callable[..., Stream]
    sql: Callable[..., str]
    #: True if the output depends on the order of rows with the same key and time.
    orders_rows: bool = False
    #: True if it may give several rows of one key and time, in an order that SQL does not define.
    ties: bool = False
    #: True if it splits streams by key, which may not be a floating-point number.
    parts: bool = False
    #: True if it gives rows that are older than rows before them, and declares how much.
    disorders: bool = False
    #: True if it needs rows in the order of their times.
    wants_order: bool = False


def plain(stream: Stream, value: str) -> Stream:
    """Reduce a stream to the columns `key`, `at` and `value`."""
    time = stream.type.time
    schema = pa.schema([stream.type.schema.field("key"), ("at", pa.timestamp("us")), ("value", pa.int64())])

    def columns(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([rows.column(name) for name in ("key", time, value)], schema=schema)

    return stream.map(columns, schema, time="at")


def _twice(rows: pa.RecordBatch) -> pa.RecordBatch:
    order = pa.array([at for at in range(rows.num_rows) for _ in (0, 1)], pa.int64())
    made = rows.take(order)
    added = pa.array([10_000 * (at % 2) for at in range(made.num_rows)], pa.int64())
    return made.set_column(2, "value", pa.compute.add(made.column("value"), added))


def _number(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    numbers = []
    for key in rows.column("key").to_pylist():
        state[key] = state.get(key, 0) + 1
        numbers.append(state[key])
    return rows.set_column(2, "value", pa.array(numbers, pa.int64()))


def _windows(stream: Stream, size: str, every: str) -> Stream:
    windows = stream.key_by("key").window(size, every=every)
    return plain(windows.aggregate(F.count(), F.sum("value")), "sum_value")


def _in_parts(write: Callable[..., Stream], *, sorts: bool = True) -> Callable[..., Stream]:
    """Put operators between a partition and a merge.

    Operators that do not handle rows one by one give them out of order, part by part, so the result is sorted.
    """

    def written(*streams: Stream) -> Stream:
        names = {str(len(each.query._operators)) for each in streams}
        stage = f"stage {max(names)}"
        parts = [each.partition("key", name=stage, **_PARTS) for each in streams]
        merged = write(*parts).merge(f"behind {stage}")
        return merged.sort("10 minutes") if sorts else merged

    return written


def _join(left: Stream, right: Stream) -> Stream:
    right = right.select("key", "at", other=F.col("value"))
    joined = left.key_by("key").join(right.key_by("key"), within="3s")
    return plain(joined.with_columns(both=F.col("value") * 7 + F.col("other")), "both")


def outer(how: str, lower_s: int = -2, upper_s: int = 4) -> Callable[..., Stream]:
    """Return an outer join of rows whose times, the right minus the left, are between two bounds."""
    between = (f"{lower_s}s", f"{upper_s}s")

    def written(left: Stream, right: Stream) -> Stream:
        right = right.select("key", "at", other=F.col("value"))
        joined = left.key_by("key").join(right.key_by("key"), between=between, how=how)  # type: ignore[arg-type]
        values = [
            pa.compute.coalesce(F.col("value") * 7, F.lit(-2000)),
            pa.compute.coalesce(F.col("other"), F.lit(-1000)),
        ]
        return plain(joined.with_columns(both=pa.compute.add(*values)), "both")

    return written


def _table(how: str) -> Callable[..., Stream]:
    def written(left: Stream, right: Stream) -> Stream:
        right = right.select("key", "at", other=F.col("value"))
        joined = left.key_by("key").join_table(right.key_by("key"), how=how)  # type: ignore[arg-type]
        other = pa.compute.coalesce(F.col("other"), F.lit(-1000))
        return plain(joined.with_columns(both=F.col("value") * 7 + other), "both")

    return written


class Silences(KeyedFunction):
    """Counts the rows of a key, and emits the count when the key has been silent for three seconds."""

    states: ClassVar = {"count": Value("int64", default=0), "timer": Value("timestamp")}

    def on_row(self, key: Any, row: dict[str, Any], context: KeyedContext) -> None:
        if context.value("timer").get() is not None:
            context.cancel(context.value("timer").get())
        context.value("count").set(context.value("count").get() + 1)
        context.value("timer").set(row["at"] + timedelta(seconds=3))
        context.timer(context.value("timer").get())

    def on_timer(self, key: Any, at: datetime, context: KeyedContext) -> Iterable[dict[str, Any]]:
        yield {"key": key, "at": at, "value": context.value("count").get()}
        context.value("count").clear()
        context.value("timer").clear()


def _silences(stream: Stream) -> Stream:
    return stream.key_by("key").process(Silences(), stream.type.schema)


def outer_sql(how: str, lower_s: int = -2, upper_s: int = 4) -> Callable[..., str]:
    left, right = "coalesce(l.value * 7, -2000)", "coalesce(r.value, -1000)"
    return sql.near_pairs(lower_s * _SECOND, upper_s * _SECOND, left, right, how)


_SLIDING = sql.windows(6 * _SECOND, 2 * _SECOND, "sum(value)")
_PAIRS = sql.pairs(3 * _SECOND, "l.value * 7 + r.value")

UNARY: dict[str, Judged] = {
    "filter": Judged(lambda s: s.filter(F.col("value") > 20), sql.where("value > 20")),
    "select": Judged(lambda s: s.select("key", "at", value=F.col("value") * 2 + 1), sql.computed("value * 2 + 1")),
    "flat map": Judged(lambda s: s.flat_map(_twice), sql.every_row_and("value + 10000")),
    "tumbling": Judged(lambda s: _windows(s, "4s", "4s"), sql.windows(4 * _SECOND, 4 * _SECOND, "sum(value)")),
    "sliding": Judged(lambda s: _windows(s, "6s", "2s"), _SLIDING),
    "hopping": Judged(lambda s: _windows(s, "2s", "5s"), sql.windows(2 * _SECOND, 5 * _SECOND, "sum(value)")),
    "count window": Judged(
        lambda s: plain(s.key_by("key").count_window(3).aggregate(F.max("value")), "max_value"),
        sql.count_windows(3, "max(value)"),
        orders_rows=True,
    ),
    "sort": Judged(lambda s: s.sort("0s"), sql.same, wants_order=True),
    "sessions": Judged(
        lambda s: plain(s.key_by("key").session_window("4s").aggregate(F.sum("value")), "sum_value"),
        sql.sessions(4 * _SECOND, "sum(value)"),
    ),
    "silences": Judged(_silences, sql.sessions(3 * _SECOND, "count(*)", longest=True), wants_order=True),
    "so far": Judged(
        lambda s: plain(s.key_by("key").global_window(every="3s").aggregate(F.sum("value")), "sum_value"),
        sql.so_far(3 * _SECOND),
        wants_order=True,
    ),
    "every two": Judged(
        lambda s: plain(s.key_by("key").global_window(rows=2).aggregate(F.sum("value")), "sum_value"),
        sql.every_so_many(2),
        orders_rows=True,
    ),
    # A row appears when the next row of its key arrives, so the result is sorted by time again.
    "resample": Judged(
        lambda s: s.key_by("key").resample("value", every="2s").sort("10 minutes"),
        sql.resampled(2 * _SECOND),
        orders_rows=True,
    ),
    "process": Judged(lambda s: s.process(_number), sql.numbered, orders_rows=True),
    "parts": Judged(
        _in_parts(lambda s: s.filter(F.col("value") > 20), sorts=False), sql.where("value > 20"), parts=True
    ),
    "windows in parts": Judged(_in_parts(lambda s: _windows(s, "6s", "2s")), _SLIDING, parts=True),
    "sessions in parts": Judged(
        _in_parts(lambda s: plain(s.key_by("key").session_window("4s").aggregate(F.sum("value")), "sum_value")),
        sql.sessions(4 * _SECOND, "sum(value)"),
        parts=True,
    ),
    "silences in parts": Judged(
        _in_parts(_silences),
        sql.sessions(3 * _SECOND, "count(*)", longest=True),
        parts=True,
        wants_order=True,
    ),
    "process in parts": Judged(
        _in_parts(lambda s: s.process(_number)), sql.numbered, orders_rows=True, parts=True
    ),
}
BINARY: dict[str, Judged] = {
    "union": Judged(lambda left, right: left.union(right), sql.both, ties=True),
    "join": Judged(_join, _PAIRS, ties=True),
    "interval": Judged(outer("inner"), outer_sql("INNER"), ties=True),
    "left join": Judged(outer("left"), outer_sql("LEFT"), ties=True, disorders=True),
    "right join": Judged(outer("right"), outer_sql("RIGHT"), ties=True, disorders=True),
    "full join": Judged(outer("full"), outer_sql("FULL"), ties=True, disorders=True),
    "full join in parts": Judged(_in_parts(outer("full")), outer_sql("FULL"), ties=True, parts=True),
    "table": Judged(_table("inner"), sql.latest_of_table("value * 7 + found", outer=False), ties=True),
    "left table": Judged(
        _table("left"), sql.latest_of_table("value * 7 + coalesce(found, -1000)", outer=True), ties=True
    ),
    "join in parts": Judged(_in_parts(_join), _PAIRS, ties=True, parts=True),
    "union in parts": Judged(_in_parts(lambda a, b: a.union(b)), sql.both, ties=True, parts=True),
}
