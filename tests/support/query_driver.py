"""A driver process that runs several `streaming_queries` at once and can be killed.

    python -m support.query_driver plan.json

It continues from the checkpoints, ends when all input is read, and prints the output and the result of a batch
run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from peacefs.service.lifeline import when_parent_dies
from peacefs.spark_connector.demo.failed_logins import root_cause
from peacefs.spark_connector.demo.query_plan import STOPPED
from peacefs.spark_connector.session import configure

from .streaming_queries import QUERIES, Query

_SCHEMA = "number BIGINT, at BIGINT, key STRING, word STRING, line STRING"
_FILES_A_BATCH = 4

Rows = list[list[Any]]


class DriverPlan(msgspec.Struct, frozen=True):
    """The paths of a driver, as Spark URIs, except for `result`, the local file that it writes last."""

    coordinator: str
    queries: list[str]
    input_uri: str
    output_uri: str
    checkpoint_uri: str
    delay_s: int
    horizon_s: int
    result: str


class Outcome(msgspec.Struct, frozen=True):
    """The sorted rows of one query: the stream's output, and the batch's result."""

    streamed: Rows
    batch: Rows


class Driver:
    def __init__(self, plan: DriverPlan) -> None:
        self._plan = plan
        builder = configure(SparkSession.builder, plan.coordinator)
        self._session: SparkSession = (
            builder.master("local[2,4]")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        self._session.sparkContext.setLogLevel("WARN")

    def run(self) -> None:
        """Run all queries to the end of their input. Raise the error that stopped a query."""
        for stage in (False, True):
            names = [name for name in self._plan.queries if (QUERIES[name].after is not None) is stage]
            for started in [self._start(name, QUERIES[name]) for name in names]:
                started.awaitTermination()
        outcomes = {name: self._outcome(name, QUERIES[name]) for name in self._plan.queries}
        unfinished = Path(f"{self._plan.result}.unfinished")
        unfinished.write_bytes(msgspec.json.encode(outcomes))
        unfinished.rename(self._plan.result)
        self._session.stop()

    def _start(self, name: str, query: Query) -> StreamingQuery:
        source = self._stream if query.after is None else lambda: self._stream_of(str(query.after))
        table = query.table(source, self._plan.horizon_s)
        writer = table.writeStream.queryName(name).outputMode(query.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{self._plan.checkpoint_uri}/{name}")
        output = self._output(name)
        if query.mode == "append":
            return writer.format("parquet").option("path", output).start()
        return writer.foreachBatch(
            lambda rows, batch: rows.write.mode("overwrite").parquet(f"{output}/batch={batch}")
        ).start()

    def _outcome(self, name: str, query: Query) -> Outcome:
        expected = query.batch(self._batch, self._plan.horizon_s)
        streamed = self._session.read.schema(self._written(expected, query)).parquet(self._output(name))
        if query.mode == "update":
            keys = [column for column in expected.columns if column != "count"]
            latest = F.max_by("count", "batch").alias("count")
            streamed = streamed.groupBy(*keys).agg(latest).select(*expected.columns)
        return Outcome(_sorted(streamed), _sorted(expected))

    def _written(self, expected: DataFrame, query: Query) -> str:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in expected.dtypes)
        return columns if query.mode == "append" else f"{columns}, batch BIGINT"

    def _output(self, name: str) -> str:
        return f"{self._plan.output_uri}/{name}"

    def _stream(self) -> DataFrame:
        lines = self._session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        return _timed(lines.json(self._plan.input_uri)).withWatermark("at", f"{self._plan.delay_s} seconds")

    def _stream_of(self, name: str) -> DataFrame:
        """Stream the output of another query, a few files per batch."""
        schema = self._session.read.parquet(self._output(name)).schema
        files = self._session.readStream.schema(schema).option("maxFilesPerTrigger", _FILES_A_BATCH)
        return files.parquet(self._output(name))

    def _batch(self) -> DataFrame:
        return _timed(self._session.read.schema(_SCHEMA).json(self._plan.input_uri))


def _timed(events: DataFrame) -> DataFrame:
    return events.withColumn("at", F.col("at").cast("timestamp"))


def _sorted(table: DataFrame) -> Rows:
    return sorted(list(row) for row in table.collect())


def main(arguments: list[str]) -> None:
    plan = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=DriverPlan)
    when_parent_dies(sys.stdin.fileno(), lambda: os._exit(1))
    try:
        Driver(plan).run()
    except (CapturedException, Py4JJavaError) as error:
        thrown = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
        sys.exit(STOPPED + root_cause(thrown))


if __name__ == "__main__":
    main(sys.argv[1:])
