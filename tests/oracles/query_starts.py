"""Spark as the judge of a start: start a query on a checkpoint in one mode, and record its output.

Every row is a distinct word, so the words in the output show what a start lost and what it repeated. The source is
a stream in memory that Spark can read in every mode, or a directory of files. It holds the same words, in the same
order, at each start. Nothing of peacefs is imported.

As a program it gives a query word after word until it is killed; any Python with a Spark runs it:

    python query_starts.py MODE QUERY CHECKPOINT SCRATCH [files]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Ways to start a query, with their names in a verdict's `starts`.
ORDINARY, ASYNC, REAL_TIME = MODES = ("ordinary", "async progress", "real-time")
_STREAMING = "spark.sql.streaming."
FORMAT = _STREAMING + "stateStore.checkpointFormatVersion"
#: Keep real-time batches short. A query with state has one task that reads and one that keeps the state.
SETTINGS = {_STREAMING + "realTimeMode.minBatchDuration": "100ms", "spark.sql.shuffle.partitions": "1"}
_DEADLINE_S = 120
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def word(number: int) -> str:
    """Return a word of a source."""
    return f"w{number}"


@dataclass
class Start:
    """The outcome: the output words of each batch, and Spark's failure, if any."""

    batches: dict[int, list[str]] = field(default_factory=dict)
    failure: str | None = None

    @property
    def words(self) -> list[str]:
        return sorted(word for words in self.batches.values() for word in words)

    @property
    def first(self) -> int | None:
        """The first batch that reached the sink, even if it had no words."""
        return min(self.batches, default=None)


class QueryStarts:
    """Starts queries in a session. A query is `plain`, or, with state, `distinct`."""

    def __init__(self, spark: SparkSession, scratch: Path, *, files: bool = False) -> None:
        self._spark = spark
        self._scratch = scratch
        self._files = files

    def run(
        self,
        checkpoint: Path,
        mode: str,
        *parts: list[str],
        query: str = "plain",
        interval_ms: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> Start:
        """Start a query on a checkpoint. Its source has the first of `parts`; add the others one by one."""
        with self._session(settings or {}):
            running = _Running(self, checkpoint, mode, query, interval_ms)
            for part in parts:
                if not running.give(part):
                    break
            return running.end()

    def run_until(
        self,
        checkpoint: Path,
        mode: str,
        done: Callable[[], bool],
        *,
        query: str = "plain",
        interval_ms: int = 0,
        within_s: float = _DEADLINE_S,
    ) -> tuple[list[str], Start]:
        """Give a query word after word until it is `done`; return the words that it took."""
        given: list[str] = []
        deadline = time.monotonic() + within_s
        with self._session({}):
            running = _Running(self, checkpoint, mode, query, interval_ms)
            while not done():
                assert time.monotonic() < deadline, f"{len(given)} batches made no such checkpoint"
                given.append(word(len(given)))
                assert running.give(given[-1:]), running.end()
            return given, running.end()

    @contextlib.contextmanager
    def _session(self, settings: Mapping[str, str]) -> Iterator[None]:
        conf = self._spark.conf
        told = SETTINGS | dict(settings)
        before = {key: conf.get(key, None) for key in told}
        for key, value in told.items():
            conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    conf.unset(key)
                else:
                    conf.set(key, old)

    def new_directory(self) -> Path:
        directory = self._scratch / uuid.uuid4().hex
        directory.mkdir(parents=True)
        return directory

    def source(self) -> tuple[DataFrame, Callable[[list[str]], None]]:
        """Return an empty source, and a function that adds words."""
        if self._files:
            directory, count = self._scratch / "words", 0
            for path in directory.glob("*"):
                path.unlink()
            directory.mkdir(exist_ok=True)

            def put(words: list[str]) -> None:
                nonlocal count
                for word in words:
                    count += 1
                    (directory / f".{word}").write_text(word)
                    os.utime(directory / f".{word}", (count, count))
                    (directory / f".{word}").rename(directory / word)

            reader = self._spark.readStream.option("maxFilesPerTrigger", 1)
            return reader.text(f"file://{directory}"), put
        from pyspark.sql import DataFrame

        jvm: Any = self._spark._jvm
        stream = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream.singlePartition(
            self._spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING()
        )
        return (
            DataFrame(stream.toDF(), self._spark),
            lambda words: stream.addData(jvm.PythonUtils.toSeq(words)),
        )


class _Running:
    """A running query."""

    def __init__(self, starts: QueryStarts, checkpoint: Path, mode: str, query: str, interval_ms: int) -> None:
        self._out = starts.new_directory()
        self._offsets = checkpoint / "offsets"
        # A Real-time Mode batch may end before the source was read; Spark then reports all data as processed.
        self._counts_words = mode == REAL_TIME
        self._given = 0
        frame, self._give = starts.source()
        if query == "distinct":
            frame = frame.dropDuplicates(["value"])
        writer = frame.writeStream.outputMode("update").foreach(_sink(str(self._out)))
        self._writer = _in_mode(writer.option("checkpointLocation", f"file://{checkpoint}"), mode, interval_ms)
        self._query: Any = None
        self._failure: str | None = None

    def give(self, words: list[str]) -> bool:
        """Give the query words and wait until it has processed them; return False if it failed."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._give(words)
        self._given += len(words)
        deadline = time.monotonic() + _DEADLINE_S
        try:
            self._query = self._query or self._writer.start()
            self._query.processAllAvailable()
            while self._counts_words and self._read() < self._given:
                assert time.monotonic() < deadline, f"{self._read()} of {self._given} words were read"
                self._query.processAllAvailable()
                time.sleep(0.05)
        except (PySparkException, Py4JError) as failure:
            self._failure = str(failure)
        return self._failure is None

    def _read(self) -> int:
        """Return the number of words before the latest offsets."""
        offsets = (int(path.name) for path in self._offsets.glob("*") if path.name.isdigit())
        latest = max(offsets, default=None)
        if latest is None:
            return 0
        end: int = json.loads((self._offsets / str(latest)).read_text().splitlines()[2])["0"]
        return end

    def end(self) -> Start:
        if self._query is not None:
            self._query.stop()
        batches: dict[int, list[str]] = {}
        for path in self._out.iterdir():
            batches.setdefault(int(path.name.partition("-")[0]), []).extend(path.read_text().split())
        return Start({batch: sorted(words) for batch, words in sorted(batches.items())}, self._failure)


def _in_mode(writer: Any, mode: str, interval_ms: int) -> DataStreamWriter:
    if mode == ASYNC:
        options = {
            "asyncProgressTrackingEnabled": "true",
            "asyncProgressTrackingCheckpointIntervalMs": str(interval_ms),
            # Spark before 4.3 does not support `foreach` in Real-time Mode.
            "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
        }
        writer = writer.options(**options)
    elif mode == REAL_TIME:
        writer = writer.trigger(realTime="1 second")
    started: DataStreamWriter = writer
    return started


def _sink(directory: str) -> Any:
    """Return a sink that writes each attempt at each batch to its own file. It is sent to Python workers."""

    class Sink:
        def open(self, partition: int, batch: int) -> bool:
            self._file = (Path(directory) / f"{batch}-{partition}-{uuid.uuid4()}").open("w")
            return True

        def process(self, row: Any) -> None:
            self._file.write(f"{row[0]}\n")
            self._file.flush()

        def close(self, error: Exception | None) -> None:
            self._file.close()

    return Sink()


def main(mode: str, query: str, checkpoint: str, scratch: str, source: str = "memory") -> None:
    """Give a query words for as long as the process lives."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(_STREAMING + "stateStore.providerClass", _ROCKSDB)
        .getOrCreate()
    )
    starts = QueryStarts(spark, Path(scratch), files=source == "files")
    _, did = starts.run_until(Path(checkpoint), mode, lambda: False, query=query, interval_ms=1000, within_s=600)
    sys.exit(did.failure)


if __name__ == "__main__":
    main(*sys.argv[1:])
