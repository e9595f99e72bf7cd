"""Checkpoints after various events, made by Spark; and Spark as the judge of what can be done with them.

Each case combines a kind of query, a way to keep state, and an event. Spark starts from the checkpoint or refuses;
then the content of its sink is compared with arithmetic over the input. Imports nothing of peacefs.

To add a row, put a kind into KINDS, a way into LAYOUTS or an event into EVENTS.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAMING = "spark.sql.streaming."
_STORE = _STREAMING + "stateStore."
_PROVIDER = "org.apache.spark.sql.execution.streaming.state."
_ALWAYS = {
    _STREAMING + "noDataMicroBatches.enabled": "false",
    _STORE + "rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}
LAYOUTS = {
    "rocksdb": {"providerClass": _PROVIDER + "RocksDBStateStoreProvider", "checkpointFormatVersion": "1"},
    "rocksdb format 2": {"providerClass": _PROVIDER + "RocksDBStateStoreProvider", "checkpointFormatVersion": "2"},
    "records": {"providerClass": _PROVIDER + "HDFSBackedStateStoreProvider", "checkpointFormatVersion": "1"},
}
#: Batches before the event. Each reads one file. One more batch follows the event.
BEFORE = 2
REPARTITIONED_TO = 3
_GAP_S = 5
_DAY_MS = 86_400_000

#: A row of the input: key, number, second.
Line = tuple[str, int, int]
Batches = dict[int, list[tuple[Any, ...]]]


def lines_of(part: int) -> list[Line]:
    """Return the rows of a file. Each key occurs in every file, and each number occurs again."""
    return [(f"k{row % 3}", (row + part) % 2, 4 * part + row) for row in range(4)]


# -- kinds of query --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A query over a stream of lines, and what its sink holds when it has read them all.

    `keys`: number of leading columns that identify the row to replace; 0 if rows are added.
    """

    query: Callable[[Callable[[], DataFrame]], DataFrame]
    model: Callable[[list[Line]], list[tuple[Any, ...]]]
    keys: int = 0
    mode: str = "append"


def _aggregation(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().groupBy("key").count()


def _counts(lines: list[Line]) -> list[tuple[Any, ...]]:
    return sorted(Counter(key for key, _, _ in lines).items())


def _everything(stream: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    return stream().groupBy().count().select(F.lit("all").alias("key"), "count")


def _deduplication(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().select("key", "number").dropDuplicates(["key", "number"])


def _distinct(lines: list[Line]) -> list[tuple[Any, ...]]:
    return sorted({(key, number) for key, number, _ in lines})


def _join(stream: Callable[[], DataFrame]) -> DataFrame:
    left, right = stream().select("key", "second"), stream().selectExpr("key", "second AS other")
    return left.join(right, "key").select("key", "second", "other")


def _pairs(lines: list[Line]) -> list[tuple[Any, ...]]:
    return sorted((key, second, other) for key, _, second in lines for its, _, other in lines if key == its)


def _several(stream: Callable[[], DataFrame]) -> DataFrame:
    return _deduplication(stream).join(stream().selectExpr("key", "second"), "key")


def _distinct_pairs(lines: list[Line]) -> list[tuple[Any, ...]]:
    return sorted((*each, second) for each in _distinct(lines) for key, _, second in lines if key == each[0])


def _sessions(stream: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    rows = stream().select("key", F.timestamp_seconds("second").alias("at"))
    session = rows.groupBy("key", F.session_window("at", f"{_GAP_S} seconds").alias("session")).count()
    return session.select("key", F.unix_seconds("session.start").alias("start"), "count")


def _session_counts(lines: list[Line]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, int], int] = {}
    for key in sorted({key for key, _, _ in lines}):
        start, last = 0, None
        for second in sorted(second for its, _, second in lines if its == key):
            start = second if last is None or second - last >= _GAP_S else start
            found[key, start] = found.get((key, start), 0) + 1
            last = second
    return sorted((*each, count) for each, count in found.items())


def _portraits(stream: Callable[[], DataFrame]) -> DataFrame:
    """Use transformWithState: a value, a list, a map, and a value that expires in a day, with a timer."""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Portrait(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._rows = handle.getValueState("rows", "n BIGINT")
            self._fresh = handle.getValueState("fresh", "n BIGINT", _DAY_MS)
            self._seconds = handle.getListState("seconds", "second BIGINT")
            self._numbers = handle.getMapState("numbers", "number BIGINT", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            arrived = list(rows)
            for value in (self._rows, self._fresh):
                value.update(((value.get()[0] if value.exists() else 0) + len(arrived),))
            for row in arrived:
                self._seconds.appendValue((row.second,))
                self._numbers.updateValue((row.number,), (1,))
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + _DAY_MS)
            seconds = sum(second[0] for second in self._seconds.get())
            numbers = len(list(self._numbers.keys()))
            counts = self._rows.get()[0], self._fresh.get()[0]
            yield Row(key=key[0], rows=counts[0], fresh=counts[1], seconds=seconds, numbers=numbers)

        def close(self) -> None:
            pass

    columns = "key STRING, rows BIGINT, fresh BIGINT, seconds BIGINT, numbers BIGINT"
    return stream().groupBy("key").transformWithState(Portrait(), columns, "Update", "ProcessingTime")


def _portrayed(lines: list[Line]) -> list[tuple[Any, ...]]:
    found = []
    for key in sorted({key for key, _, _ in lines}):
        own = [(number, second) for its, number, second in lines if its == key]
        seconds, numbers = sum(second for _, second in own), len({number for number, _ in own})
        found.append((key, len(own), len(own), seconds, numbers))
    return found


KINDS = {
    "aggregation": Kind(_aggregation, _counts, 1, "update"),
    "aggregation of everything": Kind(_everything, lambda lines: [("all", len(lines))], 1, "update"),
    "deduplication": Kind(_deduplication, _distinct),
    "join": Kind(_join, _pairs),
    "several": Kind(_several, _distinct_pairs),
    "sessions": Kind(_sessions, _session_counts, 2, "complete"),
    "transformWithState": Kind(_portraits, _portrayed, 1, "update"),
}


# -- lives -----------------------------------------------------------------------------------------


@dataclass
class Start:
    """The outcome of a start: the rows of each batch that reached the sink, and Spark's refusal, if any."""

    batches: Batches = field(default_factory=dict)
    refusal: str | None = None


class Lives:
    """Checkpoints of one kind of query that keeps its state in one way. `past` is what its sink holds by then."""

    def __init__(self, spark: SparkSession, kind: str, layout: str, directory: Path) -> None:
        self._spark = spark
        self.kind = KINDS[kind]
        self._settings = _ALWAYS | {_STORE + key: value for key, value in LAYOUTS[layout].items()}
        self._directory = directory
        self._source = directory / "in"
        self._source.mkdir(parents=True)
        self._copies = self._parts = 0
        self.put(BEFORE)
        self.ordinary = directory / "ordinary"
        first = self.start(self.ordinary)
        assert first.refusal is None and sorted(first.batches) == list(range(BEFORE)), first
        self.past = first.batches
        self.put(1)

    def put(self, parts: int) -> None:
        """Add a number of input files."""
        for part in range(self._parts, self._parts + parts):
            path = self._source / f"{part}.txt"
            path.write_text("".join(f"{key} {number} {second}\n" for key, number, second in lines_of(part)))
            os.utime(path, (part + 1, part + 1))
        self._parts += parts

    def copy(self, root: Path) -> Path:
        """Copy to a new path each time, because Spark caches by path."""
        self._copies += 1
        place = self._directory / f"copy-{self._copies}"
        shutil.copytree(root, place)
        return place

    def after(self, event: str) -> Path:
        """Return a checkpoint after an event."""
        root = self.copy(self.ordinary)
        EVENTS[event](self, root)
        return root

    def start(self, root: Path | str, fails_at: int | None = None) -> Start:
        """Start the query, until the end of its input. The sink fails in batch `fails_at`. `root` may be a URI."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        start = Start()

        def put_out(rows: DataFrame, batch: int) -> None:
            found = sorted(tuple(row) for row in rows.collect())
            if batch == fails_at:
                raise RuntimeError("the sink is told to fail")
            start.batches[batch] = found

        with self._set():
            writer = self.kind.query(self._stream).writeStream.outputMode(self.kind.mode).foreachBatch(put_out)
            place = root if isinstance(root, str) else f"file://{root}"
            writer = writer.option("checkpointLocation", place).trigger(availableNow=True)
            try:
                writer.start().awaitTermination()
            except (PySparkException, Py4JError) as failure:
                start.refusal = str(failure)
        return start

    def repartition(self, root: Path, partitions: int = REPARTITIONED_TO, *, skips: bool = False) -> str | None:
        """Repartition; return the reason if Spark refused. With `skips`, pass over a failed batch."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with self._set():
            try:
                manager = self._spark._streamingCheckpointManager
                manager.repartition(f"file://{root}", partitions, not skips)
            except (PySparkException, Py4JError) as failure:
                return str(failure)
        return None

    def holds(self, start: Start, first: int) -> list[tuple[Any, ...]]:
        """Return the sink's content after a start at batch `first`. Earlier batches remain."""
        rows: dict[Any, tuple[Any, ...]] = {}
        batches = {batch: found for batch, found in self.past.items() if batch < first} | start.batches
        for batch, found in sorted(batches.items()):
            for place, row in enumerate(found):
                rows[row[: self.kind.keys] or (batch, place)] = row
        return sorted(rows.values())

    def expected(self) -> list[tuple[Any, ...]]:
        """Return what the sink must hold, by arithmetic."""
        return self.kind.model([line for part in range(self._parts) for line in lines_of(part)])

    def _stream(self) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{self._source}")
        parts = "split(value, ' ')"
        columns = (f"{parts}[0] AS key", f"bigint({parts}[1]) AS number", f"bigint({parts}[2]) AS second")
        return lines.selectExpr(*columns)

    def _set(self) -> _Settings:
        return _Settings(self._spark, self._settings)


class _Settings:
    """Sets a session's settings, and restores them afterwards."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        self._spark, self._settings = spark, settings

    def __enter__(self) -> None:
        self._before = {key: self._spark.conf.get(key, None) for key in self._settings}
        for key, value in self._settings.items():
            self._spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, old in self._before.items():
            if old is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, old)


# -- events ----------------------------------------------------------------------------------------


def _repartitioned(lives: Lives, root: Path) -> None:
    lives.repartition(root)


def _killed(lives: Lives, root: Path, written: Callable[[Path], bool]) -> None:
    """Undo a repartition to the moment when it was killed: keep its plan, and the files that were `written`.

    Spark writes the plan, the state of each partition, the metadata of operators and the commit, in this order.
    Each file is whole or not there.
    """
    before = {path.relative_to(root) for path in root.rglob("*")}
    lives.repartition(root)
    for path in sorted(root.rglob("*")):
        made = path.relative_to(root)
        of_plan = made.parts[0] == "offsets"
        if path.is_file() and made not in before and not of_plan and not written(made):
            path.unlink()


def _half_way(lives: Lives, root: Path) -> None:
    _killed(lives, root, lambda path: path.parts[:3] in (("state", "0", "0"), ("state", "0", "2")))


def _passed_over(lives: Lives, root: Path) -> None:
    failed = lives.start(root, fails_at=BEFORE)
    assert failed.refusal is not None and not failed.batches, failed
    lives.repartition(root, skips=True)


EVENTS: dict[str, Callable[[Lives, Path], None]] = {
    "ordinary": lambda lives, root: None,
    "repartitioned": _repartitioned,
    "killed when a repartition was planned": lambda lives, root: _killed(lives, root, lambda path: False),
    "killed half-way through a repartition": _half_way,
    "killed before the commit of a repartition": lambda lives, root: _killed(
        lives, root, lambda path: path.parts[0] != "commits"
    ),
    "repartitioned past a batch that failed": _passed_over,
}
