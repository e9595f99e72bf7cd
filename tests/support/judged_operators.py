"""Operators of dataflows, each with the SQL that defines it, for streams of `key`, `at` and `value`."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from oracles import sql_streams as sql

from peacefs.dataflow import functions as F
from peacefs.dataflow.query.query import Stream

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
    "sort": Judged(lambda s: s.sort("0s"), sql.same),
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
    "process in parts": Judged(
        _in_parts(lambda s: s.process(_number)), sql.numbered, orders_rows=True, parts=True
    ),
}
BINARY: dict[str, Judged] = {
    "union": Judged(lambda left, right: left.union(right), sql.both, ties=True),
    "join": Judged(_join, _PAIRS, ties=True),
    "join in parts": Judged(_in_parts(_join), _PAIRS, ties=True, parts=True),
    "union in parts": Judged(_in_parts(lambda a, b: a.union(b)), sql.both, ties=True, parts=True),
}
