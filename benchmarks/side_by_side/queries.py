"""The two queries, the rows that both read, and the output that a batch over all rows gives.

A row of the source is a line of a log: its address, one of its words, whether the log-in succeeded, and its
number. Both queries have three units. The second one has the state, and its node is killed.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network

SCHEMA = pa.schema(
    [("source", pa.string()), ("word", pa.string()), ("at", TIME), ("ok", pa.bool_()), ("n", pa.int64())]
)
FEEDS_PER_S = 50
ROWS_PER_FEED = 100
#: The unit with the state.
UNIT = "state"
SOURCE, SINK = "lines", "out"
_SOURCES = 64
_WORDS = 5_000
_FAILED = 0.3
#: Number of feeds that are prepared in advance, and then repeated with new times and numbers.
_MADE = 100
_US = 1_000_000

#: A row of an output: its key, its position among the rows of the key, and a count.
Row = tuple[str, int, int]


@dataclass
class Feed:
    """Rows at a steady rate, from when `begin` is set until `over` is set, with a record of them."""

    begin: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    given: list[pa.RecordBatch] = field(default_factory=list)
    #: When each batch was given, in seconds of `time.monotonic`, which is also the time of its rows.
    given_s: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.begin.wait()
        begun_s = time.monotonic()
        number = 0
        while not self.over.is_set():
            time.sleep(max(begun_s + number / FEEDS_PER_S - time.monotonic(), 0))
            now_s = time.monotonic()
            self.given.append(made_at(number, now_s))
            self.given_s.append(now_s)
            yield self.given[-1]
            number += 1

    @property
    def rows(self) -> int:
        return len(self.given) * ROWS_PER_FEED


@cache
def _made() -> list[pa.RecordBatch]:
    chance = np.random.default_rng(17)
    weights = 1 / np.arange(1, _WORDS + 1)
    cumulated = np.cumsum(weights / weights.sum())
    sources = np.array([f"10.0.0.{number}" for number in range(_SOURCES)])
    # Words have the frequencies of a natural language (Zipf).
    words = np.array([f"word-{number}" for number in range(_WORDS)])
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array(sources[chance.integers(0, _SOURCES, ROWS_PER_FEED)]),
                pa.array(words[np.searchsorted(cumulated, chance.random(ROWS_PER_FEED))]),
                pa.array(np.zeros(ROWS_PER_FEED, np.int64)).cast(TIME),
                pa.array(chance.random(ROWS_PER_FEED) >= _FAILED),
                pa.array(np.arange(ROWS_PER_FEED)),
            ],
            schema=SCHEMA,
        )
        for _ in range(_MADE)
    ]


def made_at(number: int, now_s: float | None = None) -> pa.RecordBatch:
    """Return the rows of feed `number`. Their time is `now_s`, or else follows from the number."""
    rows = _made()[number % _MADE]
    now_s = number / FEEDS_PER_S if now_s is None else now_s
    times = pa.array(np.full(rows.num_rows, int(now_s * _US))).cast(TIME)
    numbers = pa.array(np.arange(rows.num_rows) + number * ROWS_PER_FEED)
    return rows.set_column(2, SCHEMA.field("at"), times).set_column(4, SCHEMA.field("n"), numbers)


class SideQuery(ABC):
    name: ClassVar[str]
    #: The columns of an output row that hold its key, position and count.
    columns: ClassVar[tuple[str, str, str]]

    @abstractmethod
    def network(self) -> Network: ...

    @abstractmethod
    def expected(self, given: Sequence[pa.RecordBatch]) -> list[Row]:
        """Return the output of a batch over all rows by key, each key's rows in order."""

    @abstractmethod
    def offered_s(self, rows: Sequence[Row], given_s: Sequence[float]) -> NDArray[np.float64]:
        """Return for each row when the last input row that affects it was offered, or may have been."""

    def rows_of(self, batch: pa.RecordBatch) -> list[Row]:
        """Return rows of the sink in the form for comparison."""
        key, place, count = (batch.column(name) for name in self.columns)
        return list(zip(key.to_pylist(), place.cast(pa.int64()).to_pylist(), count.to_pylist(), strict=True))

    @staticmethod
    def subject(row: Row) -> Hashable:
        return row[:2]


class FailedLogins(SideQuery):
    """Failed log-ins per source in windows of a second, every 50 ms. A row's position is its window's start."""

    name = "failed log-ins"
    columns = ("source", "window_start", "count")
    size_us: ClassVar[int] = _US
    every_us: ClassVar[int] = 50_000

    def network(self) -> Network:
        query = Query("failed-logins")
        failed = query.source(SOURCE, SCHEMA, time="at").filter(~F.col("ok")).unit(UNIT)
        windows = failed.key_by("source").window(f"{self.size_us}us", every=f"{self.every_us}us")
        windows.aggregate(F.count()).unit("last").filter(F.col("count") > 0).sink(SINK)
        return query.network()

    def expected(self, given: Sequence[pa.RecordBatch]) -> list[Row]:
        lines = pa.Table.from_batches(given, SCHEMA)
        lines = lines.filter(pa.compute.invert(lines.column("ok")))
        last = lines.column("at").cast(pa.int64()).to_numpy() // self.every_us * self.every_us
        names, codes = np.unique(lines.column("source").to_numpy(), return_inverse=True)
        steps = np.arange(self.size_us // self.every_us) * self.every_us
        windows = np.stack([np.repeat(codes, len(steps)), (last[:, None] - steps[None, :]).reshape(-1)], axis=1)
        found, counts = np.unique(windows, axis=0, return_counts=True)
        return [
            (str(names[code]), start, count)
            for (code, start), count in zip(found.tolist(), counts.tolist(), strict=True)
        ]

    def offered_s(self, rows: Sequence[Row], given_s: Sequence[float]) -> NDArray[np.float64]:
        return np.array([(start + self.size_us) / _US for _, start, _ in rows])


class WordCounts(SideQuery):
    """The count of each word so far, for each row. A row's position is the number of its input row."""

    name = "word counts"
    columns = ("word", "n", "count")

    def network(self) -> Network:
        # Nodes receive its code, because they may lack this module.
        def counted(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
            words, codes = np.unique(rows.column("word").to_numpy(zero_copy_only=False), return_inverse=True)
            keys = pa.array(words, pa.string())
            before = state.find(keys).column("count").fill_null(0).to_numpy(zero_copy_only=False)
            times = np.bincount(codes, minlength=len(words))
            order = np.argsort(codes, kind="stable")
            ranks = np.empty(len(codes), np.int64)
            ranks[order] = np.arange(len(codes)) - np.repeat(np.cumsum(times) - times, times)
            state.add_at(keys, times)
            counts = pa.array(before[codes] + ranks + 1, pa.int64())
            arrays = [rows.column("word"), rows.column("at"), rows.column("n"), counts]
            return pa.RecordBatch.from_arrays(arrays, ["word", "at", "n", "count"])

        query = Query("word-counts")
        lines = query.source(SOURCE, SCHEMA, time="at").filter(F.col("n") >= 0).unit(UNIT)
        kinds = {"word": "string", "at": "timestamp", "n": "int64", "count": "int64"}
        counts = lines.process(counted, kinds, state={"word": "string", "count": "int64"}, key="word")
        counts.unit("last").filter(F.col("count") > 0).sink(SINK)
        return query.network()

    def expected(self, given: Sequence[pa.RecordBatch]) -> list[Row]:
        lines = pa.Table.from_batches(given, SCHEMA)
        counts: dict[str, int] = {}
        found: dict[str, list[Row]] = {}
        words, numbers = lines.column("word").to_pylist(), lines.column("n").to_pylist()
        for word, number in zip(words, numbers, strict=True):
            counts[word] = counts.get(word, 0) + 1
            found.setdefault(word, []).append((word, number, counts[word]))
        return [row for word in sorted(found) for row in found[word]]

    def offered_s(self, rows: Sequence[Row], given_s: Sequence[float]) -> NDArray[np.float64]:
        return np.array([given_s[number // ROWS_PER_FEED] for _, number, _ in rows])


QUERIES: Mapping[str, SideQuery] = {query.name: query for query in (FailedLogins(), WordCounts())}
