"""Stream logs as Spark's source and sink: each row once, whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows
from support.log_dataflow import network, source_rows
from support.log_plan import LogPlan
from support.pages import ROOT, Page
from support.waiting import wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.logs.log_place import open_stream
from peacefs.dataflow.logs.log_reader import LogReader
from peacefs.dataflow.logs.log_source import LogSource
from peacefs.dataflow.logs.stream_log import StreamLogs
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.spark_connector.demo.query_process import QueryProcess
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.stream_log_types import rows_from_python
from peacefs.spark_connector.stream_logs import FORMAT, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
_TESTS = Path(__file__).parent.parent
_PATIENCE_S = 400.0
_LOOK_S = 0.3


def write(address: str, batches: list[pa.RecordBatch], kind: StreamType, *, segment_bytes: int = 3000) -> None:
    with open_stream(address) as (store, name):
        logs = StreamLogs(store, segment_bytes=segment_bytes)
        log = logs.open(name, kind)
        for rows in batches:
            log.append(Batch(log.last + 1, rows))
            logs.commit()


def rows_at(address: str) -> list[dict[str, Any]]:
    with open_stream(address) as (store, name):
        return [row for batch in LogReader(store, name).read() for row in batch.rows.to_pylist()]


def rows_in(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def run_all(spark: SparkSession, source: str, target: str, checkpoint: Path, **options: str) -> list[int]:
    """Copy all rows of one log into another; return the rows of each batch."""
    register(spark)
    rows = spark.readStream.format(FORMAT).options(**options).load(source)
    writer = rows.writeStream.format(FORMAT).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(target)
    query.awaitTermination()
    return [each["numInputRows"] for each in query.recentProgress]


def test_stream_log_is_a_table_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Columns are the log's, times are instants in any zone, and ranges select rows."""
    schema = pa.schema(
        [
            ("at", TIME),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("real", pa.float64()),
            ("small", pa.int16()),
            ("yes", pa.bool_()),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("many", pa.list_(pa.int64())),
        ]
    )
    row = ["text", b"\x00\xff", 1.5, 7, True, date(1970, 1, 4), Decimal("1.25"), [1, 2]]
    columns = [pa.array([0, 1_500_000], pa.int64()).cast(TIME)]
    columns += [pa.array([value, None], kind) for value, kind in zip(row, schema.types[1:], strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    source, target = (tmp_path / "source").as_uri(), (tmp_path / "target").as_uri()
    write(source, [rows], StreamType(schema, "at"))
    register(spark)
    table = spark.read.format(FORMAT).load(source)
    assert table.dtypes == [
        ("at", "timestamp"),
        ("text", "string"),
        ("bytes", "binary"),
        ("real", "double"),
        ("small", "smallint"),
        ("yes", "boolean"),
        ("day", "date"),
        ("price", "decimal(10,2)"),
        ("many", "array<bigint>"),
    ]
    first = table.selectExpr("unix_micros(at)", "hex(bytes)", "price + 1", "many[1]").first()
    assert first is not None and (first[0], first[1], str(first[2]), first[3]) == (0, "00FF", "2.25", 2)
    table.write.format(FORMAT).mode("append").save(target)
    table.write.format(FORMAT).mode("append").save(target)
    assert rows_at(target) == rows.to_pylist() * 2, "a batch that its user repeats is there again"


def test_stream_log_is_read_by_ranges(spark: SparkSession, tmp_path: Path) -> None:
    """There is a partition per segment. Ranges start at a row, a time or the end, and end at a row."""
    source = (tmp_path / "source").as_uri()
    written = input_rows(1, batches=30, size=5)
    write(source, written, StreamType(SCHEMA, "at"))
    register(spark)

    def values(**options: str) -> list[int]:
        rows = spark.read.format(FORMAT).options(**options).load(source).collect()
        return sorted(row["value"] for row in rows)

    whole = spark.read.format(FORMAT).load(source)
    assert whole.rdd.getNumPartitions() == len(list((tmp_path / "source").glob("*.log"))) > 3
    assert values() == list(range(150))
    assert values(startingOffsets="73", endingOffsets="80") == list(range(72, 80))
    assert values(startingOffsets="latest") == []
    time = rows_in(written)[100]["at"]
    begin = min(at for at, row in enumerate(rows_in(written)) if row["at"] >= time)
    assert values(startingTimestamp=time.isoformat()) == list(range(begin, 150))


def test_stream_log_goes_through_a_query_in_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Later rows are read by the next start, from the checkpoint's position."""
    source, target = (tmp_path / "source").as_uri(), (tmp_path / "target").as_uri()
    kind, written = StreamType(SCHEMA, "at"), input_rows(1, batches=30, size=5)
    write(source, written[:20], kind)
    assert run_all(spark, source, target, tmp_path / "checkpoint", maxRowsPerBatch="40") == [40, 40, 20]
    write(source, written[20:], kind)
    assert run_all(spark, source, target, tmp_path / "checkpoint") == [50]
    assert rows_at(target) == rows_in(written)


def test_stream_batch_that_is_repeated_appears_once(spark: SparkSession, tmp_path: Path) -> None:
    """The driver was killed between the sink's commit and its own. Another query's rows are new."""
    source, target = (tmp_path / "source").as_uri(), (tmp_path / "target").as_uri()
    written = input_rows(1, batches=30, size=5)
    write(source, written, StreamType(SCHEMA, "at"))
    run_all(spark, source, target, tmp_path / "checkpoint", maxRowsPerBatch="60")
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    assert run_all(spark, source, target, tmp_path / "checkpoint") == [30], "the last batch is run again"
    assert rows_at(target) == rows_in(written)
    run_all(spark, source, target, tmp_path / "another")
    assert rows_at(target) == rows_in(written) * 2


def test_stream_log_refuses_what_it_cannot_keep(spark: SparkSession, tmp_path: Path) -> None:
    """Refused: no time, two times, a null time, other columns, complete output mode."""
    target = (tmp_path / "target").as_uri()
    register(spark)

    def refused(query: str, **options: str) -> str:
        with pytest.raises(Exception) as said:  # noqa: PT011 - Spark wraps what Python raises
            spark.sql(query).write.format(FORMAT).mode("append").options(**options).save(target)
        return str(said.value)

    assert "there are none: say option('time', NAME)" in refused("SELECT 1 AS a")
    two = "SELECT current_timestamp() AS a, current_timestamp() AS b"
    assert "there are 'a', 'b'" in refused(two)
    assert "'c'" in refused(two, time="c")
    assert "takes no nulls" in refused("SELECT CAST(NULL AS timestamp) AS a")
    assert not (tmp_path / "target").exists() or not list((tmp_path / "target").glob("*.log"))
    spark.sql(two).write.format(FORMAT).mode("append").option("time", "b").save(target)
    assert "write to another stream" in refused("SELECT current_timestamp() AS b")
    with pytest.raises(Exception, match="there is no stream log at"):
        spark.read.format(FORMAT).load(f"{target}/nothing").collect()


def test_log_in_a_directory_does_without_the_client(tmp_path: Path) -> None:
    """Spark starts a Python process for each step of a batch, which imports everything anew."""
    write((tmp_path / "log").as_uri(), input_rows(1, batches=1, size=5), StreamType(SCHEMA, "at"))
    program = (
        "import sys\n"
        "from peacefs.spark_connector.stream_logs import StreamLogDataSource\n"
        "print(len(StreamLogDataSource({'path': sys.argv[1]}).schema()))\n"
        "print('peacefs.client.filesystem' in sys.modules)"
    )
    command = [sys.executable, "-P", "-c", program, (tmp_path / "log").as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["3", "False"]


def test_rows_of_python_become_rows_of_a_log() -> None:
    """Write rows in the form that Spark 4.0 passes to sinks, without Arrow."""
    from pyspark.sql import Row

    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("many", pa.list_(pa.int64()))])
    rows = [Row(at=datetime(2026, 1, 1, tzinfo=UTC), many=[number]) for number in range(25_000)]
    made = list(rows_from_python(iter(rows), schema))
    assert [batch.num_rows for batch in made] == [10_000, 10_000, 5_000]
    assert made[-1].slice(4_999).to_pylist() == [{"at": datetime(2026, 1, 1, tzinfo=UTC), "many": [24_999]}]


def test_guide_copies_a_stream_log_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    written, _ = Page(ROOT / "docs" / "stream-logs.md").blocks("python")
    rows = input_rows(1, batches=20, size=5)
    write(f"{tmp_path.as_uri()}/streams/attacks", rows, StreamType(SCHEMA, "at"))
    names: dict[str, Any] = {}
    exec(
        compile(written.replace("webhdfs://127.0.0.1:9870", tmp_path.as_uri()), "docs/stream-logs.md", "exec"),
        names,
    )
    names["query"].processAllAvailable()
    names["query"].stop()
    assert rows_at(f"{tmp_path.as_uri()}/streams/copy") == rows_in(rows)


# -- kills ------------------------------------------------------------------------------------------------


class Programs:
    """A dataflow that writes the log `one`, and a Spark query from it to the log `other`."""

    def __init__(self, cluster: LocalCluster, directory: Path, worker_python: Path) -> None:
        self.coordinator, self._directory = cluster.http_address, directory
        self._worker_python = worker_python
        authority = cluster.http_address.removeprefix("http://")
        self.one, self.other = (f"webhdfs://{authority}/logs/{name}" for name in ("one", "other"))
        self._checkpoint = f"webhdfs://{authority}/checkpoints/query"
        self._starts = 0

    def start(self, role: str, *, holds: bool = False) -> QueryProcess:
        self._starts += 1
        directory = self._directory / f"{role}-{self._starts}"
        source, target = ("", self.one) if role == "dataflow" else (self.one, self.other)
        plan = self._directory / f"{role}.json"
        user = os.environ.get("HADOOP_USER_NAME", "alice")
        wanted = LogPlan(self.coordinator, user, str(directory), source, target, self._checkpoint, holds)
        plan.write_bytes(msgspec.json.encode(wanted))
        variables = {
            **java_environment(find_java(), self._directory / "java"),
            **scratch_environment(self._directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._worker_python),
            "HADOOP_USER_NAME": user,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])),
        }
        return QueryProcess(f"support.log_{role}", plan, self._directory / f"{role}.log", variables)

    def rows(self, address: str) -> int:
        with open_stream(address, user="alice") as (store, name):
            return LogReader(store, name).end().place.number

    def wait_for(self, process: QueryProcess, rows: int, address: str, *, look_s: float = _LOOK_S) -> None:
        """Wait until a log has a number of rows; its writer must not end before that."""
        self._wait(process, lambda: self.rows(address) >= rows, f"{rows} rows in {address}", look_s)

    def wait_for_batch(self, process: QueryProcess) -> None:
        """Wait until the query has begun its first batch."""
        with PeaceFileSystem(self.coordinator) as files:
            begun = f"{split_uri(self._checkpoint)[1]}/offsets/0"
            self._wait(process, lambda: files.exists(begun), "a batch", _LOOK_S)

    @staticmethod
    def _wait(process: QueryProcess, reached: Callable[[], bool], what: str, look_s: float) -> None:
        """Wait between two checks, each of which loads the whole cluster."""

        def reached_or_ended() -> bool:
            time.sleep(look_s)
            return reached() or process.status is not None

        wait_until(reached_or_ended, what, _PATIENCE_S)
        assert reached(), "\n".join(process.last_words(40))


@pytest.fixture
def programs(tmp_path: Path, worker_python: Path) -> Iterator[Programs]:
    (tmp_path / "scratch").mkdir()
    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        yield Programs(cluster, tmp_path, worker_python)


@pytest.mark.cluster
@pytest.mark.long("a minute of kills")
def test_stream_rows_are_there_once_when_dataflow_and_spark_are_killed(programs: Programs, tmp_path: Path) -> None:
    """A dataflow writes a log, a Spark query copies it to another log, a second dataflow reads that.

    The first dataflow's program and the Spark driver are killed in the middle, each with all its processes.
    """
    expected = SeededRun(network(), SGuard(interval_s=1), {"in": source_rows()}, seed=1).run().rows("out")
    count = len(expected)
    with programs.start("dataflow", holds=True) as dataflow:
        programs.wait_for(dataflow, 100, programs.one)
        dataflow.kill()
    begun = programs.rows(programs.one)
    assert begun < count, "it was to be killed in the middle"
    with programs.start("query") as spark, programs.start("dataflow") as dataflow:
        # The driver is killed as soon as rows appear, usually before it records the batch as done.
        programs.wait_for_batch(spark)
        programs.wait_for(spark, 1, programs.other, look_s=0.01)
        spark.kill()
        programs.wait_for(dataflow, count, programs.one)
        wait_until(lambda: dataflow.status is not None, "the end of the dataflow", _PATIENCE_S)
        assert dataflow.status == 0, "\n".join(dataflow.last_words(40))
    assert programs.rows(programs.other) < count
    assert [tuple(row.values()) for row in rows_at(programs.one)] == expected
    with programs.start("query") as spark:
        programs.wait_for(spark, count, programs.other)
    through = [(key, at, value + 1) for key, at, value in expected]
    assert Counter(tuple(row.values()) for row in rows_at(programs.other)) == Counter(through)

    # A second dataflow reads what the Spark query wrote.
    source = LogSource(programs.other, user="alice", upto=count)
    query = Query("sums")
    query.source("in", source.type).key_by("key").window("1d", every="1d").aggregate(
        F.count(), F.sum("value")
    ).sink("out")
    sums: list[dict[str, Any]] = []
    take: Callable[[pa.RecordBatch], None] = lambda rows: sums.extend(rows.to_pylist())  # noqa: E731
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path / "sums"), node_timeout_s=100.0)
    with host.start(query.network(), SGuard(interval_s=1), {"in": source}, {"out": take}) as run:
        run.wait(_PATIENCE_S)
    assert {row["key"]: (row["count"], row["sum_value"]) for row in sums} == {
        name: (sum(key == name for key, _, _ in through), sum(value for key, _, value in through if key == name))
        for name in "abc"
    }
