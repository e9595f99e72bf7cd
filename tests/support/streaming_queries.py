"""Streaming queries of every kind that keeps state or files, each with a batch query for the expected output.

The final output does not depend on how the input was cut into batches, or how often a batch was repeated: the
sentinel (`log_events`) closes every window and fires every timer. Timers fire at the horizon, which is after all
events and before the sentinel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

_GAP = "30 seconds"
_WINDOW = "10 minutes"
_WITHIN_S = 5
_WITHIN_LINES = 5

#: Reads the events again, with the columns of `log_events.Event`, and a watermark on `at` for streams.
Events = Callable[[], DataFrame]


@dataclass(frozen=True)
class Query:
    """`table` is the query over a stream; `batch` is the same query over all events at once.

    `mode` is the output mode: `update` writes with foreachBatch into one directory per batch, `append` uses the
    file sink. `after` names a query whose output is the source of this query, and which ends before this query
    begins.
    """

    table: Callable[[Events, int], DataFrame]
    batch: Callable[[Events, int], DataFrame]
    mode: str = "append"
    after: str | None = None


def joined(events: Events, _horizon_s: int) -> DataFrame:
    """Join two streams: each event with the events of the same key that follow closely."""
    left = events().select("key", "number", "at")
    right = events().select(F.col("key").alias("its"), F.col("number").alias("next"), F.col("at").alias("then"))
    close = F.col("then").between(F.col("at"), F.col("at") + F.expr(f"interval {_WITHIN_S} seconds"))
    following = F.col("next").between(F.col("number") + 1, F.col("number") + _WITHIN_LINES)
    return left.join(right, (F.col("key") == F.col("its")) & close & following).select("key", "number", "next")


def distinct(events: Events, _horizon_s: int) -> DataFrame:
    """Deduplicate. The watermark removes state."""
    table = events().dropDuplicates(["key", "word", "at"])
    return table.select("key", "word", F.col("at").cast("bigint").alias("at"))


def sessions(events: Events, _horizon_s: int) -> DataFrame:
    """Build session windows by key. Drop the sentinel's, which only moves the watermark."""
    session = events().groupBy(F.session_window("at", _GAP).alias("session"), "key")
    return (
        session.agg(F.count("*").alias("events"), F.max("number").alias("last"))
        .where("last >= 0")
        .select("key", F.col("session.start").cast("bigint").alias("start"), "events", "last")
    )


def windows(events: Events, _horizon_s: int) -> DataFrame:
    """Count in windows that change until they are closed."""
    counts = events().groupBy(F.window("at", _WINDOW).alias("window"), "word").count()
    return counts.select("word", F.col("window.start").cast("bigint").alias("start"), "count")


def filtered(events: Events, _horizon_s: int) -> DataFrame:
    """Filter, with no state except the file source's and the file sink's."""
    return events().where(F.col("number") % 2 == 0).select("number", "key", "word", "line")


def refiltered(files: Events, _horizon_s: int) -> DataFrame:
    """Filter the output of `filtered` again."""
    return files().where(F.col("number") % 4 == 0).select("number", "key", "line")


def _filtered_twice(events: Events, horizon_s: int) -> DataFrame:
    return refiltered(lambda: filtered(events, horizon_s), horizon_s)


# -- state of Python's own --------------------------------------------------------------------------

_TOTALS = "key STRING, events BIGINT, numbers BIGINT"


def pandas_totals(events: Events, horizon_s: int) -> DataFrame:
    """Count each key's events with applyInPandasWithState, and emit the counts at the horizon."""

    def count(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            total, numbers = state.get
            state.remove()
            yield pd.DataFrame({"key": [key[0]], "events": [total], "numbers": [numbers]})
            return
        total, numbers = state.get if state.exists else (0, 0)
        for part in parts:
            total, numbers = total + len(part), numbers + int(part["number"].sum())
        if key[0]:
            state.update((total, numbers))
            state.setTimeoutTimestamp(horizon_s * 1000)

    grouped = events().groupBy("key")
    timeout = GroupStateTimeout.EventTimeTimeout
    return grouped.applyInPandasWithState(count, _TOTALS, "events BIGINT, numbers BIGINT", "append", timeout)


def _batch_totals(events: Events, _horizon_s: int) -> DataFrame:
    totals = events().where("number >= 0").groupBy("key")
    return totals.agg(F.count("*").alias("events"), F.sum("number").alias("numbers"))


class Portrait(StatefulProcessor):
    """Describe each key: its number of events (a value), its words' counts (a map), and its words (a list)."""

    def __init__(self, horizon_s: int) -> None:
        self._horizon_ms = horizon_s * 1000

    @staticmethod
    def _held(state: tuple[Any, ...] | None) -> Any:
        """Return the only column of a state."""
        assert state is not None
        return state[0]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._events = handle.getValueState("events", "events BIGINT")
        self._words = handle.getMapState("words", "word STRING", "events BIGINT")
        self._numbers = handle.getListState("numbers", "number BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if not key[0]:
            return iter(())
        arrived = list(rows)
        before = self._held(self._events.get()) if self._events.exists() else 0
        self._events.update((before + len(arrived),))
        for row in arrived:
            word = (row.word,)
            known = self._held(self._words.getValue(word)) if self._words.containsKey(word) else 0
            self._words.updateValue(word, (known + 1,))
            self._numbers.appendValue((row.number,))
        self._handle.registerTimer(self._horizon_ms)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        words = sorted((word[0], count[0]) for word, count in self._words.iterator())
        numbers = sum(number[0] for number in self._numbers.get())
        said = " ".join(f"{word}:{count}" for word, count in words)
        yield Row(key=key[0], events=self._held(self._events.get()), numbers=numbers, words=said)
        for state in (self._events, self._words, self._numbers):
            state.clear()

    def close(self) -> None:
        pass


def portraits(events: Events, horizon_s: int) -> DataFrame:
    """Use transformWithState, with state of all three kinds and a timer."""
    return (
        events()
        .groupBy("key")
        .transformWithState(Portrait(horizon_s), f"{_TOTALS}, words STRING", "Append", "EventTime")
    )


def _batch_portraits(events: Events, _horizon_s: int) -> DataFrame:
    words = events().where("number >= 0").groupBy("key", "word")
    counted = words.agg(F.count("*").alias("events"), F.sum("number").alias("numbers"))
    pair = F.struct("word", F.concat_ws(":", "word", "events").alias("said"))
    return counted.groupBy("key").agg(
        F.sum("events").alias("events"),
        F.sum("numbers").alias("numbers"),
        F.concat_ws(" ", F.array_sort(F.collect_list(pair)).getField("said")).alias("words"),
    )


QUERIES = {
    "joined": Query(joined, joined),
    "distinct": Query(distinct, distinct),
    "sessions": Query(sessions, sessions),
    "windows": Query(windows, windows, mode="update"),
    "filtered": Query(filtered, filtered),
    "refiltered": Query(refiltered, _filtered_twice, after="filtered"),
    "pandas_totals": Query(pandas_totals, _batch_totals),
    "portraits": Query(portraits, _batch_portraits),
}
