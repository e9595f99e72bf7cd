"""Small queries of each class, their input, and how their outputs are judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream

SCHEMA = pa.schema([("key", pa.string()), ("at", TIME), ("value", pa.int64())])
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Sample:
    """A query with units `first` and `second`, and the sink `out`."""

    network: Network
    #: The columns that identify an output row for the judge of recovery.
    subject: Callable[[Row], Hashable]
    carries: Callable[[Row], Iterable[Hashable]] | None = None
    #: The unit with the operator that determines the class. Later units handle rows one by one.
    unit: str = "second"

    def rows(self, seed: int, *, batches: int = 8, size: int = 4) -> dict[str, list[pa.RecordBatch]]:
        return {
            source.name: input_rows(seed + at, batches=batches, size=size, first=at * 1_000_000)
            for at, source in enumerate(self.network.sources)
        }


def input_rows(seed: int, *, batches: int, size: int, first: int = 0) -> list[pa.RecordBatch]:
    """Return rows in the order of their times, each with its own value."""
    chance = random.Random(seed)
    at, made = 0, []
    for batch in range(batches):
        rows = []
        for place in range(size):
            at += chance.randint(0, 900_000)
            rows.append((chance.choice("abc"), at, first + batch * size + place))
        keys, times, values = zip(*rows, strict=True)
        arrays = [pa.array(keys), pa.array(times, pa.int64()).cast(TIME), pa.array(values, pa.int64())]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return made


def passed(stream: Stream) -> Stream:
    """Pass rows on one by one, in a stage that takes almost no time."""
    return stream.select(*stream.type.schema.names)


def repeatable() -> Sample:
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    stream.unit("second").with_columns(doubled=F.col("value") * 2).sink("out")
    return Sample(query.network(), lambda row: row[2])


def convergent() -> Sample:
    query = Query("first")
    stream = passed(query.source("in", SCHEMA, time="at"))
    windows = stream.unit("second").key_by("key").window("4s", every="2s")
    windows.aggregate(F.count(), F.sum("value")).sink("out")
    return Sample(query.network(), lambda row: (row[0], row[1]))


def deterministic() -> Sample:
    """Cut windows of rows in the first unit, so that a failure may change the second unit's input."""
    query = Query("first")
    windows = query.source("in", SCHEMA, time="at").key_by("key").count_window(3, every=2)
    passed(windows.aggregate(F.sum("value"), F.min("value")).unit("second")).sink("out")
    return Sample(query.network(), lambda row: (row[0], row[1]), unit="first")


def arbitrary() -> Sample:
    """Return a union whose rows are numbered in the order in which they interleave."""
    query = Query("first")
    one, other = query.source("in", SCHEMA, time="at"), query.source("more", SCHEMA, time="at")
    passed(one.union(other).process(_numbered, remembers="0s").unit("second")).sink("out")
    return Sample(query.network(), lambda row: row[2], unit="first")


def _numbered(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    numbers = []
    for _ in range(rows.num_rows):
        state["rows"] = state.get("rows", 0) + 1
        numbers.append(f"row {state['rows']}")
    return rows.set_column(0, "key", pa.array(numbers))


SAMPLES: dict[OperatorClass, Callable[[], Sample]] = {
    OperatorClass.REPEATABLE: repeatable,
    OperatorClass.CONVERGENT_CAPABLE: convergent,
    OperatorClass.DETERMINISTIC: deterministic,
    OperatorClass.ARBITRARY: arbitrary,
}
