"""Spark's own way to run the queries: micro-batches, and Real-time Mode (Spark 4.1 and newer, aggregates 4.3).

Rows come from the driver's memory (`LowLatencyMemoryStream`, which Real-time Mode reads like Kafka), one feed per
string. Checkpoints are on peacefs. The executor with the most processor time is killed. Micro-batches continue by
themselves; a query in Real-time Mode fails, and is restarted at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.processor_time import cpu_s
from peacefs.protocol.errors import InvalidQuery

from .contest import NODES, Output, ShowsLatest
from .queries import FailedLogins, Feed, Row, SideQuery, WordCounts
from .usage import descendants

_PATIENT_S = 120.0
#: Source and word of rows outside the load: the first row, and a row that ends all windows.
_END = "end"
_END_AFTER_S = 10.0
#: The shortest interval that Spark allows between checkpoints in Real-time Mode.
_CHECKPOINT_EVERY = "5 seconds"
#: Real-time Mode requires the second format; our settings choose the first.
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class SparkQuery(ABC):
    """A query as Spark runs it."""

    name: ClassVar[str]

    def __init__(self, spark: Any, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._stream: Any = None
        #: A StreamingQuery, once started.
        self._query: Any = None
        self._feeding: threading.Thread | None = None
        self._given = Feed()
        self._watching: threading.Thread | None = None
        self._killed: list[int] = []

    # -- as a contestant --------------------------------------------------------------------------------

    def start(self, query: SideQuery, feed: Feed, output: Output) -> None:
        self._await_executors()
        jvm = self._spark.sparkContext._jvm
        kind = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
        self._stream = kind.apply(self._spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.STRING())
        self._begin(query, output)
        # The first row takes as long as a cold JVM needs.
        self._add_text(f"{_END},{_END},0,1,-1")
        self._await_first()
        self._given = feed
        self._feeding = threading.Thread(target=self._feed, args=(feed,), name="feed")
        self._feeding.start()

    def kill(self) -> None:
        victim = max(executors(), key=cpu_s)
        self._killed.append(victim)
        os.kill(victim, signal.SIGKILL)

    def noticed_s(self) -> Sequence[float]:
        return ()

    def repair(self) -> None:
        self._await_executors()

    def finish(self) -> None:
        assert self._feeding is not None
        self._feeding.join()
        self._end()

    def close(self) -> None:
        if self._feeding is not None:
            self._feeding.join()
        if self._query is not None:
            self._query.stop()

    # -- for each kind ------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, query: SideQuery, output: Output) -> None:
        """Start the query on the stream's input."""

    @abstractmethod
    def _await_first(self) -> None:
        """Wait until the first row has been processed."""

    @abstractmethod
    def _end(self) -> None:
        """Wait until all input is at the sink."""

    # -- rows -----------------------------------------------------------------------------------------------

    def _lines(self) -> DataFrame:
        """Return the rows of the source as strings."""
        text = DataFrame(self._stream.toDF(), self._spark)
        lines = text.select(F.explode(F.split("value", "\n")).alias("line"))
        return lines.select(F.split("line", ",").alias("cells")).select(
            F.col("cells")[0].alias("source"),
            F.col("cells")[1].alias("word"),
            F.timestamp_micros(F.col("cells")[2].cast("long")).alias("at"),
            (F.col("cells")[3] == "1").alias("ok"),
            F.col("cells")[4].cast("long").alias("n"),
        )

    def _word_counts(self) -> DataFrame:
        return self._lines().groupBy("word").agg(F.max("n").alias("n"), F.count("*").alias("count"))

    def _feed(self, feed: Feed) -> None:
        for rows in feed:
            self._add(rows)

    def _add(self, rows: pa.RecordBatch) -> None:
        columns = [rows.column(name).to_pylist() for name in ("source", "word", "ok", "n")]
        times = rows.column("at").cast(pa.int64()).to_pylist()
        lines = (
            f"{source},{word},{at},{ok:d},{n}" for source, word, ok, n, at in zip(*columns, times, strict=True)
        )
        self._add_text("\n".join(lines))

    def _add_text(self, text: str) -> None:
        self._stream.addData(self._spark.sparkContext._jvm.PythonUtils.toSeq([text]))

    def _await_executors(self) -> None:
        deadline_s = time.monotonic() + _PATIENT_S
        while len([pid for pid in executors() if pid not in self._killed]) < NODES:
            if time.monotonic() > deadline_s:
                raise TimeoutError("Spark has not started its executors")
            time.sleep(0.1)


class MicroBatches(SparkQuery):
    name = "micro-batches"

    def _begin(self, query: SideQuery, output: Output) -> None:
        def take(batch: DataFrame, _: int) -> None:
            rows = batch.collect()
            # Rows of a micro-batch have no order.
            output.add(time.monotonic(), sorted(_row(row) for row in rows if row[0] != _END))

        self._windowed = isinstance(query, FailedLogins)
        found = self._failed_logins() if self._windowed else self._word_counts()
        self._query = (
            found.writeStream.foreachBatch(take)
            .outputMode("append" if self._windowed else "update")
            .option("checkpointLocation", self._checkpoint)
            .start()
        )

    def _await_first(self) -> None:
        self._query.processAllAvailable()

    def _failed_logins(self) -> DataFrame:
        size, every = f"{FailedLogins.size_us} microseconds", f"{FailedLogins.every_us} microseconds"
        failed = self._lines().withWatermark("at", "0 seconds").where("NOT ok")
        counted = failed.groupBy("source", F.window("at", size, every)).agg(F.count("*").alias("count"))
        return counted.select("source", F.unix_micros("window.start").alias("start"), "count")

    def _end(self) -> None:
        if self._windowed:
            self._query.processAllAvailable()
            at_us = int((time.monotonic() + _END_AFTER_S) * 1_000_000)
            self._add_text(f"{_END},,{at_us},0,0")
        self._query.processAllAvailable()


class WordsInMicroBatches(MicroBatches, ShowsLatest):
    """Output the last count of a word that occurs several times in a batch."""


class RealTime(SparkQuery, ShowsLatest):
    name = "Real-time Mode"

    def start(self, query: SideQuery, feed: Feed, output: Output) -> None:
        if not isinstance(query, WordCounts):
            raise InvalidQuery(
                "Real-time Mode has update mode alone, and gives running counts of open windows in place of a row "
                "for each window that is over"
            )
        super().start(query, feed, output)

    def _begin(self, query: SideQuery, output: Output) -> None:
        self._output = output
        self._closing = False
        self._first = threading.Event()
        self._spark.conf.set(_FORMAT, "2")
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, name="sink", daemon=True).start()
        self._start()
        self._watching = threading.Thread(target=self._watch, name="restarts", daemon=True)
        self._watching.start()

    def _start(self) -> None:
        writer = _to_socket(self._listener.getsockname()[1])
        self._query = (
            self._word_counts()
            .writeStream.foreach(writer)
            .outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .trigger(realTime=_CHECKPOINT_EVERY)  # type: ignore[call-overload]
            .start()
        )

    def _watch(self) -> None:
        """Restart the query whenever it fails."""
        while not self._closing:
            try:
                self._query.awaitTermination()
            except StreamingQueryException:
                if not self._closing:
                    self._start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), name="rows", daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile() as lines:
            for line in lines:
                word, n, count = line.split(",")
                if word == _END:
                    self._first.set()
                else:
                    self._output.add(time.monotonic(), [(word, int(n), int(count))])

    def _await_first(self) -> None:
        if not self._first.wait(_PATIENT_S):
            raise TimeoutError("Real-time Mode gives no row")

    def _end(self) -> None:
        """Wait for the last row, and until no more arrive: such a query is never idle."""
        deadline_s = time.monotonic() + _PATIENT_S
        last, seen, looked = self._given.rows - 1, 0, False
        while not looked or seen < len(self._output.rows):
            if time.monotonic() > deadline_s:
                raise TimeoutError("Real-time Mode has not given all rows")
            looked = looked or any(row[1] == last for row in self._output.rows[seen:])
            seen = len(self._output.rows)
            time.sleep(2.0)

    def close(self) -> None:
        self._closing = True
        super().close()
        if hasattr(self, "_listener"):
            self._listener.close()
            self._spark.conf.set(_FORMAT, "1")
        if self._watching is not None:
            self._watching.join(_PATIENT_S)


def _to_socket(port: int) -> Any:
    """Return a writer that sends each row to this program at once."""

    class ToSocket:
        def open(self, partition: int, epoch: int) -> bool:
            import socket

            self.connection = socket.create_connection(("127.0.0.1", port))
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return True

        def process(self, row: Any) -> None:
            self.connection.sendall(f"{row[0]},{row[1]},{row[2]}\n".encode())

        def close(self, error: Exception | None) -> None:
            self.connection.close()

    return ToSocket()


def executors() -> list[int]:
    """Return the processes of the executors that this program's Spark has started."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _row(row: Sequence[Any]) -> Row:
    return row[0], row[1], row[2]


def spark_queries(query: SideQuery) -> Iterator[type[SparkQuery]]:
    """Return the ways in which Spark can run a query."""
    yield WordsInMicroBatches if isinstance(query, WordCounts) else MicroBatches
    yield RealTime
