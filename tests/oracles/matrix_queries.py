"""The queries of the checkpoint matrix, for any Python with a PySpark. Nothing of peacefs is imported.

As a program it reads a JSON object per line, and answers each with lines of JSON, the last one `{"done": ...}`:

    {"run": [JOB, ...]}             start these queries together, to the end of their input
    {"repartition": ROOT, "to": N}  repartition the state of a stopped query (Spark 4.2 and newer)

    python matrix_queries.py SETTINGS.json

A JOB has `name`, `kind`, `conf` (the session's), `source` (a directory of text files), `root` (the checkpoint)
and `output`. A file of the input is a batch. Each batch that reaches the sink is a file `output/BATCH.json`, and
a line `{"sink": NAME, "batch": BATCH}`; a batch that comes again replaces the file.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAY_S, WINDOW_S, GAP_S, WITHIN_S = 10, 30, 5, 20
_DAY_MS = 86_400_000
_TOGETHER = 40
_IDLE_BATCHES = 20

Stream = Callable[[], "DataFrame"]


def _timely(stream: Stream) -> DataFrame:
    return stream().selectExpr("*", "timestamp_seconds(second) AS at").withWatermark("at", f"{DELAY_S} seconds")


def _copy(stream: Stream) -> DataFrame:
    return stream().where("number = 0").select("key", "second")


def _aggregation(stream: Stream) -> DataFrame:
    return stream().groupBy("key").agg({"*": "count", "second": "sum"}).toDF("key", "rows", "seconds")


def _windows(stream: Stream) -> DataFrame:
    from pyspark.sql import functions as F

    counts = _timely(stream).groupBy("key", F.window("at", f"{WINDOW_S} seconds").alias("w")).count()
    return counts.select("key", F.unix_seconds("w.start").alias("start"), "count")


def _deduplication(stream: Stream) -> DataFrame:
    return stream().select("key", "number").dropDuplicates(["key", "number"])


def _within_watermark(stream: Stream) -> DataFrame:
    rows = _timely(stream).selectExpr("key", "number", "second div 60 AS minute", "at")
    return rows.dropDuplicatesWithinWatermark(["key", "number", "minute"]).select("key", "number", "minute")


def _join(how: str) -> Callable[[Stream], DataFrame]:
    def join(stream: Stream) -> DataFrame:
        from pyspark.sql import functions as F

        left = _timely(stream).where("number <> 0").select("key", "second", "at")
        right = _timely(stream).where("number = 0").selectExpr("key AS its", "second AS other", "at AS then")
        close = F.expr(f"key = its AND then >= at AND then <= at + INTERVAL {WITHIN_S} SECONDS")
        joined = left.join(right, close, how)
        columns = ["key", "second"] if how == "leftsemi" else ["key", "second", "its", "other"]
        return joined.select(*columns)

    return join


def _several(stream: Stream) -> DataFrame:
    from pyspark.sql import functions as F

    distinct = _timely(stream).dropDuplicates(["key", "number", "at"])
    counts = distinct.groupBy("key", F.window("at", f"{WINDOW_S} seconds").alias("w")).count()
    return counts.select("key", F.unix_seconds("w.start").alias("start"), "count")


def _sessions(stream: Stream) -> DataFrame:
    from pyspark.sql import functions as F

    rows = _timely(stream).groupBy("key", F.session_window("at", f"{GAP_S} seconds").alias("session")).count()
    return rows.select("key", F.unix_seconds("session.start").alias("start"), "count")


def _pandas_state(stream: Stream) -> DataFrame:
    import pandas as pd

    def count(key: tuple[Any, ...], parts: Iterator[Any], state: Any) -> Iterator[Any]:
        rows, seconds = state.get if state.exists else (0, 0)
        for part in parts:
            rows, seconds = rows + len(part), seconds + int(part["second"].sum())
        state.update((rows, seconds))
        yield pd.DataFrame({"key": [key[0]], "rows": [rows], "seconds": [seconds]})

    columns = "key STRING, rows BIGINT, seconds BIGINT"
    grouped = stream().groupBy("key")
    return grouped.applyInPandasWithState(count, columns, "rows BIGINT, seconds BIGINT", "update", "NoTimeout")


class _Portrait:
    """A value, one that expires in a day, a list, a map, and a timer that fires when a window is over."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._rows = handle.getValueState("rows", "n BIGINT")
        self._fresh = handle.getValueState("fresh", "n BIGINT", _DAY_MS)
        self._seconds = handle.getListState("seconds", "second BIGINT")
        self._numbers = handle.getMapState("numbers", "number BIGINT", "n BIGINT")

    def _take(self, arrived: list[tuple[int, int]]) -> None:
        for value in (self._rows, self._fresh):
            value.update(((value.get()[0] if value.exists() else 0) + len(arrived),))
        for number, second in arrived:
            self._seconds.appendValue((second,))
            self._numbers.updateValue((number,), (1,))

    def _seen(self, key: str) -> tuple[Any, ...]:
        seconds = sum(second[0] for second in self._seconds.get())
        return key, self._rows.get()[0], self._fresh.get()[0], seconds, len(list(self._numbers.keys()))

    def close(self) -> None:
        pass


_COLUMNS = ["key", "rows", "fresh", "seconds", "numbers"]
_PORTRAIT = "key STRING, rows BIGINT, fresh BIGINT, seconds BIGINT, numbers BIGINT"


def _portraits(stream: Stream) -> DataFrame:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Portraits(_Portrait, StatefulProcessor):  # type: ignore[misc]
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            self._take([(row.number, row.second) for row in rows])
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + _DAY_MS)
            yield Row(**dict(zip(_COLUMNS, self._seen(key[0]), strict=True)))

    return stream().groupBy("key").transformWithState(Portraits(), _PORTRAIT, "Update", "ProcessingTime")


def _portraits_in_pandas(stream: Stream) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Portraits(_Portrait, StatefulProcessor):  # type: ignore[misc]
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for part in rows:
                self._take([(int(row.number), int(row.second)) for row in part.itertuples()])
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + _DAY_MS)
            yield pd.DataFrame([self._seen(key[0])], columns=_COLUMNS)

    return stream().groupBy("key").transformWithStateInPandas(Portraits(), _PORTRAIT, "Update", "ProcessingTime")


def _timers(stream: Stream) -> DataFrame:
    """Use timers of event time: one at the end of each window in which a key occurs."""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Timers(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._rows = handle.getMapState("rows", "start BIGINT", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for row in rows:
                start = row.second // WINDOW_S * WINDOW_S
                before = self._rows.getValue((start,))[0] if self._rows.containsKey((start,)) else 0
                self._rows.updateValue((start,), (before + 1,))
                self._handle.registerTimer((start + WINDOW_S) * 1000)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            start = expiredTimerInfo.getExpiryTimeInMs() // 1000 - WINDOW_S
            count = self._rows.getValue((start,))[0]
            self._rows.removeKey((start,))
            yield Row(key=key[0], start=start, count=count)

        def close(self) -> None:
            pass

    columns = "key STRING, start BIGINT, count BIGINT"
    return _timely(stream).groupBy("key").transformWithState(Timers(), columns, "Append", "EventTime")


def _jvm_portraits(stream: Stream) -> DataFrame:
    """Use the JVM's form of transformWithState, compiled from `matrix_portraits.java`."""
    from pyspark.sql import DataFrame

    rows = stream()
    spark = rows.sparkSession
    jvm: Any = spark._jvm
    return DataFrame(jvm.matrix.Portraits.of(rows._jdf), spark)


#: Each query, with the output mode.
QUERIES: dict[str, tuple[Callable[[Stream], DataFrame], str]] = {
    "copy": (_copy, "append"),
    "aggregation": (_aggregation, "update"),
    "windows": (_windows, "append"),
    "deduplication": (_deduplication, "append"),
    "deduplication within watermark": (_within_watermark, "append"),
    "join": (_join("inner"), "append"),
    "join, left outer": (_join("leftouter"), "append"),
    "join, right outer": (_join("rightouter"), "append"),
    "join, full outer": (_join("fullouter"), "append"),
    "join, left semi": (_join("leftsemi"), "append"),
    "two operators": (_several, "append"),
    "sessions": (_sessions, "append"),
    "applyInPandasWithState": (_pandas_state, "update"),
    "transformWithStateInPandas": (_portraits_in_pandas, "update"),
    "transformWithState": (_portraits, "update"),
    "transformWithState, timers": (_timers, "append"),
    "transformWithState, JVM": (_jvm_portraits, "update"),
}


# -- the program -----------------------------------------------------------------------------------

_saying = threading.Lock()


def _say(**what: Any) -> None:
    with _saying:
        print(json.dumps(what), flush=True)


def _run(spark: SparkSession, job: dict[str, Any]) -> None:
    own = spark.newSession()
    for key, value in job["conf"].items():
        own.conf.set(key, value)
    output = Path(job["output"])
    output.mkdir(parents=True, exist_ok=True)
    attempted: list[int] = []
    idle = 0

    def stream() -> DataFrame:
        lines = own.readStream.option("maxFilesPerTrigger", 1).text(f"file://{job['source']}")
        parts = "split(value, ' ')"
        return lines.selectExpr(
            f"{parts}[0] AS key", f"bigint({parts}[1]) AS number", f"bigint({parts}[2]) AS second"
        )

    def put_out(rows: DataFrame, batch: int) -> None:
        nonlocal idle
        found = [list(row) for row in rows.collect()]
        idle = 0 if found else idle + 1
        unfinished = output / f".{batch}"
        unfinished.write_text(json.dumps(found))
        unfinished.replace(output / f"{batch}.json")
        attempted.append(batch)
        _say(sink=job["name"], batch=batch)

    failure = None
    try:
        build, mode = QUERIES[job["kind"]]
        writer = build(stream).writeStream.outputMode(mode).foreachBatch(put_out).trigger(availableNow=True)
        query = writer.option("checkpointLocation", job["root"]).start()
        # A transformWithState of processing time always wants another batch, so `availableNow` never ends it.
        while not query.awaitTermination(1):
            if idle > _IDLE_BATCHES:
                query.stop()
    except Exception as problem:  # Py4J's and Spark's errors have no common base.
        failure = f"{type(problem).__name__}: {problem}"
    _say(ended=job["name"], failure=failure, first=min(attempted, default=None), batches=sorted(set(attempted)))


def _repartition(spark: SparkSession, root: str, to: int, conf: dict[str, str]) -> str | None:
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        spark._streamingCheckpointManager.repartition(root, to, True)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def main(settings: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[4]")
    for key, value in json.loads(Path(settings).read_text()).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    _say(done=spark.version)
    for line in sys.stdin:
        asked = json.loads(line)
        if "run" in asked:
            with concurrent.futures.ThreadPoolExecutor(_TOGETHER) as pool:
                list(pool.map(lambda job: _run(spark, job), asked["run"]))
            _say(done=None)
        else:
            failure = _repartition(spark.newSession(), asked["repartition"], asked["to"], asked["conf"])
            _say(done=failure)


if __name__ == "__main__":
    main(*sys.argv[1:])
