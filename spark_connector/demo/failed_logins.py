"""The demo's streaming query: failed log-ins per source address and window of event time.

Runs as its own process, so that the demo can kill it:

    python -m peacefs.spark_connector.demo.failed_logins plan.json

The file sink's log makes the query exactly-once across restarts. Every line must advance event time, including
lines without failures. So all lines are aggregated, and groups without failures are dropped afterwards: Spark
would push an earlier filter below the watermark, which would then never see the sentinel line.

The process ends when its standard input ends, that is, when its starter is gone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from peacefs.service.lifeline import when_parent_dies
from peacefs.spark_connector.session import configure

from . import auth_log_columns
from .query_plan import STOPPED, FailureCount, QueryPlan, QueryResult

_PROGRESS_POLL_S = 1


def start_session(plan: QueryPlan) -> SparkSession:
    builder = configure(SparkSession.builder, plan.coordinator)
    session = (
        builder.master(plan.master)
        .appName("failed log-ins")
        .config("spark.sql.shuffle.partitions", str(plan.partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("WARN")
    return session


def failed_logins(lines: DataFrame, plan: QueryPlan) -> DataFrame:
    """Aggregate a streaming or batch table with a column `value`."""
    line = F.col("value")
    news = lines.select(
        auth_log_columns.instant(line, plan.years).alias("at"),
        auth_log_columns.source(line).alias("source"),
        auth_log_columns.failures(line).alias("failures"),
    ).where(F.col("at").isNotNull())
    return (
        news.withWatermark("at", f"{plan.delay_s} seconds")
        .groupBy(F.window("at", f"{plan.window_s} seconds"), "source")
        .agg(F.sum("failures").alias("failures"))
        .where(F.col("failures") > 0)
        .select(F.col("window.start").cast("bigint").alias("start"), "source", "failures")
    )


def start_query(session: SparkSession, plan: QueryPlan) -> StreamingQuery:
    """Start the query, or continue from the checkpoint. It stops when all input is read."""
    lines = (
        session.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .option("lineSep", "\n")
        .load(plan.input_uri)
    )
    return (
        failed_logins(lines, plan)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", plan.output_uri)
        .option("checkpointLocation", plan.checkpoint_uri)
        .trigger(availableNow=True)
        .start()
    )


def batch_rows(session: SparkSession, plan: QueryPlan) -> list[FailureCount]:
    """Return the same aggregation over the whole input at once."""
    lines = session.read.option("lineSep", "\n").text(plan.input_uri)
    return _rows(failed_logins(lines, plan))


def streamed_rows(session: SparkSession, plan: QueryPlan) -> list[FailureCount]:
    return _rows(session.read.schema("start BIGINT, source STRING, failures BIGINT").parquet(plan.output_uri))


def _rows(table: DataFrame) -> list[FailureCount]:
    return sorted(FailureCount(row.start, row.source, row.failures) for row in table.collect())


class ProgressFile:
    """A file with each batch's StreamingQueryProgress, one JSON line per batch, appended as batches end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_batch = -1

    def append_news(self, query: StreamingQuery) -> None:
        news = [json.loads(progress.json) for progress in query.recentProgress]
        news = [progress for progress in news if progress["batchId"] > self._last_batch]
        if not news:
            return
        with self._path.open("a", encoding="utf-8") as file:
            for progress in news:
                file.write(json.dumps(progress) + "\n")
        self._last_batch = news[-1]["batchId"]


def run(plan: QueryPlan) -> None:
    """Run the query to its end and write the result. Raises the exception that stopped the query."""
    session = start_session(plan)
    progress = ProgressFile(Path(plan.progress))
    query = start_query(session, plan)
    try:
        while not query.awaitTermination(_PROGRESS_POLL_S):
            progress.append_news(query)
    finally:
        progress.append_news(query)
    result = QueryResult(streamed_rows(session, plan), batch_rows(session, plan))
    unfinished = Path(f"{plan.result}.unfinished")
    unfinished.write_bytes(msgspec.json.encode(result))
    unfinished.rename(plan.result)
    session.stop()


def root_cause(thrown: JavaObject) -> str:
    """Return the innermost cause of a Java exception, in one line."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    first_line = str(thrown.toString()).split("\n", 1)[0]
    # Of a failed task Spark keeps only the text, after the place where it ran.
    return first_line.rpartition(" executor driver): ")[2]


def main(arguments: list[str]) -> None:
    plan = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=QueryPlan)
    when_parent_dies(sys.stdin.fileno(), lambda: os._exit(1))
    try:
        run(plan)
    except (CapturedException, Py4JJavaError) as error:
        thrown = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
        sys.exit(STOPPED + root_cause(thrown))


if __name__ == "__main__":
    main(sys.argv[1:])
