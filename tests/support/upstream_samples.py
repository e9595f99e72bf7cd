"""Queries with every operator, whose rows come out of order, for recovery from an empty state."""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream

from .dataflows import SCHEMA, input_rows, passed

#: Rename the other source's column.
OTHER = SCHEMA.set(2, pa.field("other", pa.int64()))


def disordered_rows(
    network: Network, seed: int, *, batches: int = 12, size: int = 4, every_ms: int = 300
) -> dict[str, list[pa.RecordBatch]]:
    """Return rows up to two seconds out of order. Keys change with time."""
    made: dict[str, list[pa.RecordBatch]] = {}
    for at, source in enumerate(network.sources):
        chance = random.Random(f"{seed} {source.name}")
        rows = input_rows(seed + at, batches=batches, size=size, first=at * 1_000_000)
        made[source.name] = []
        for number, batch in enumerate(rows):
            times = [
                max(((number * size + place) * every_ms - chance.randint(0, 2000)) * 1000, 0)
                for place in range(size)
            ]
            names = [chance.choice("abc") for _ in range(size)]
            columns = [pa.array(names), pa.array(times).cast(SCHEMA.field("at").type), batch.column("value")]
            made[source.name].append(pa.RecordBatch.from_arrays(columns, schema=source.type.schema))
    return made


def _one(write: Callable[[Stream], Stream]) -> Callable[[], Network]:
    def network() -> Network:
        query = Query("first")
        stream = passed(query.source("in", SCHEMA, time="at"))
        passed(write(stream.unit("second")).unit("third")).sink("out")
        return query.network()

    return network


def _joined() -> Network:
    query = Query("first")
    left = passed(query.source("in", SCHEMA, time="at"))
    right = passed(query.source("more", OTHER, time="at"))
    left.unit("second").key_by("key").join(right.key_by("key"), within="1s").unit("third").with_columns(
        both=F.col("value") + F.col("other")
    ).sink("out")
    return query.network()


def _joined_windows() -> Network:
    """Combine a sort, a window and a join in one unit. The join's sides need rows of different ages."""
    query = Query("first")
    left = query.source("in", SCHEMA, time="at").sort("2s").key_by("key").window("3s", every="1s")
    counted = left.aggregate(F.count(), F.max("value"))
    counted = counted.select("key", "count", "max_value", "window_end")
    right = query.source("more", OTHER, time="at").sort("2s")
    joined = counted.unit("second").key_by("key").join(right.key_by("key"), within="1s")
    passed(joined.unit("third")).sink("out")
    return query.network()


def _last_of_two_seconds(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    """Add to each row the sum of the values of the last two seconds."""
    sums = []
    latest = state.get("latest", 0)
    kept = [list(each) for each in state.get("rows", [])]
    for at, value in zip(
        rows.column("at").cast(pa.int64()).to_pylist(), rows.column("value").to_pylist(), strict=True
    ):
        latest = max(latest, at)
        kept.append([at, value])
        kept = [each for each in kept if each[0] > latest - 2_000_000]
        sums.append(sum(value for _, value in kept))
    state["latest"], state["rows"] = latest, kept
    return rows.set_column(2, "value", pa.array(sums, pa.int64()))


#: Queries whose operators reach the same state from any starting point.
CONVERGING: dict[str, Callable[[], Network]] = {
    "filter": _one(lambda rows: rows.filter(F.col("value") > 2)),
    "flat map": _one(lambda rows: rows.flat_map(lambda batch: pa.concat_batches([batch, batch]))),
    "sliding window": _one(
        lambda rows: (
            rows.key_by("key").window("4s", every="1s").aggregate(F.count(), F.sum("value"), at=F.max("at"))
        )
    ),
    "late rows": _one(
        lambda rows: rows.window("3s", every="1s", lateness="500ms").aggregate(F.sum("value"), at=F.max("at"))
    ),
    "sort": _one(lambda rows: rows.sort("1500ms")),
    "resample": _one(lambda rows: rows.sort("2s").key_by("key").resample("value", every="500ms", method="linear")),
    "process": _one(lambda rows: rows.sort("2s").process(_last_of_two_seconds, remembers="2s")),
    "join": _joined,
    "joined windows": _joined_windows,
}
