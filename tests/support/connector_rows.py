"""Rows for connectors, their place in topics and files, and a model of the query in `connector_query.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from peacefs.dataflow.connectors.interface import SinkOpening
from peacefs.dataflow.model.stream_type import TIME, StreamType

KIND = StreamType(pa.schema([("user", pa.string()), ("at", TIME), ("n", pa.int64())]), "at")
USERS = 7


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Return rows with the values `first` to `last` of column `n`."""
    noon = datetime(2026, 1, 1, 12)
    return [{"user": f"u{n % USERS}", "at": noon + timedelta(seconds=n), "n": n} for n in range(first, last + 1)]


def batch(first: int, last: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows(first, last), schema=KIND.schema)


def given_by(source: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for each in source for row in each.to_pylist()]


def as_json(row: Mapping[str, Any]) -> bytes:
    return json.dumps({**row, "at": row["at"].isoformat()}).encode()


def opening(*, fresh: bool, instance: str = "one") -> SinkOpening:
    return SinkOpening("query", "sink", KIND, instance, fresh)


def totals(given: Iterable[Mapping[str, Any]]) -> set[tuple[str, int, int]]:
    """Return user, n and running total of each row that the query puts out. Rows of a user come in order."""
    made, sums = set(), dict.fromkeys((f"u{user}" for user in range(USERS)), 0)
    for row in given:
        if row["n"] % 4:
            sums[row["user"]] += row["n"]
            made.add((row["user"], row["n"], sums[row["user"]]))
    return made


class MemoryJournal:
    """The journal of a source, which outlives the source."""

    def __init__(self) -> None:
        self.data: bytes | None = None

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data
