"""Queries whose replay needs determinants: their input alone does not lead to the same state again.

Each has a unit `second`, followed by two units that read its output, for the sinks `out` and `copy`. A row that
one of them received before a failure is produced again for the other. So both sinks have the same rows only if the
replay repeats what happened before.

Values are powers of four, a digit for each input row (`judged_networks.digits`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream

from .dataflows import SCHEMA, passed

_BATCHES, _BATCH_ROWS = 5, 3


def determined_rows(network: Network, seed: int) -> dict[str, list[pa.RecordBatch]]:
    """Return the rows of each source. A source named `short` has few rows and ends long before the others."""
    chance = random.Random(seed)
    rows: dict[str, list[pa.RecordBatch]] = {}
    number = 0
    for source in network.sources:
        time_us = 0
        rows[source.name] = []
        for _ in range(2 if source.name == "short" else _BATCHES):
            made = []
            for _ in range(_BATCH_ROWS):
                time_us += chance.randint(0, 900_000)
                made.append((chance.choice("abc"), time_us, 4**number))
                number += 1
            keys, times, values = zip(*made, strict=True)
            arrays = [pa.array(keys), pa.array(times, pa.int64()).cast(TIME), pa.array(values, pa.int64())]
            rows[source.name].append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return rows


def _twice(stream: Stream) -> Network:
    """Split a stream into two outputs, each behind its own unit."""
    query = stream.query
    for unit, sink in (("third", "out"), ("fourth", "copy")):
        stream.unit(unit).select(*stream.type.schema.names).sink(sink)
    return query.network()


def _one(write: Callable[[Stream], Stream]) -> Callable[[], Network]:
    def network() -> Network:
        first = passed(Query("determined").source("in", SCHEMA, time="at").unit("first"))
        return _twice(write(first.unit("second")))

    return network


def _two(write: Callable[[Stream, Stream], Stream], other: str = "more") -> Callable[[], Network]:
    def network() -> Network:
        query = Query("determined")
        left = passed(query.source("in", SCHEMA, time="at").unit("first"))
        return _twice(write(left.unit("second"), query.source(other, SCHEMA, time="at")))

    return network


def drawn(rows: pa.RecordBatch, state: MutableMapping[Any, Any], chance: random.Random) -> pa.RecordBatch:
    """Keep about half of the rows, and mark them with a random number."""
    kept = rows.filter(pa.array([chance.random() < 0.5 for _ in range(rows.num_rows)]))
    marks = [f"{chance.random()}" for _ in range(kept.num_rows)]
    return kept.set_column(0, "key", pa.array(marks, pa.string()))


#: Windows whose start depends on a count. Their output equals that of a run without a failure.
ALIGNED: dict[str, Callable[[], Network]] = {
    "count windows": _one(lambda rows: rows.key_by("key").count_window(3).aggregate(F.count(), F.sum("value"))),
    "sliding count windows": _one(
        lambda rows: rows.key_by("key").count_window(4, every=2).aggregate(F.mean("value"), F.min("value"))
    ),
    "spaced count windows": _one(
        lambda rows: rows.key_by("key").count_window(2, every=5).aggregate(F.count(), F.sum("value"))
    ),
    "windows of all keys": _one(lambda rows: rows.count_window(5, every=3).aggregate(F.sum("value"))),
    "count windows, then windows of time": _one(
        lambda rows: (
            rows.key_by("key").count_window(2).aggregate(F.sum("value")).window("2s").aggregate(F.max("sum_value"))
        )
    ),
}
#: Queries whose output depends on more than their input, such as the order of arrival.
ARBITRARY: dict[str, Callable[[], Network]] = {
    "union": _two(lambda left, right: left.union(right)),
    "union with a source that ends soon": _two(lambda left, right: left.union(right), other="short"),
    "union and count windows": _two(
        lambda left, right: left.union(right).count_window(3).aggregate(F.count(), F.sum("value"))
    ),
    "union and windows of time": _two(
        lambda left, right: (
            left.union(right).window("4s", every="1s", lateness="2s").aggregate(F.count(), F.sum("value"))
        )
    ),
    "union and sort": _two(lambda left, right: left.union(right).sort("1s")),
    "count windows with a timeout": _one(
        lambda rows: rows.key_by("key").count_window(4, timeout="60ms").aggregate(F.count(), F.sum("value"))
    ),
    "windows of time with a timeout": _one(
        lambda rows: rows.key_by("key").window("3s", timeout="60ms").aggregate(F.count(), F.sum("value"))
    ),
    "chance": _one(lambda rows: rows.process(drawn, remembers="0s", deterministic=False)),
}
