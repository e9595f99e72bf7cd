"""Programs that are killed while they write stream logs: a dataflow, and a Spark query that reads what it writes.

`python -m support.log_programs PLAN` runs one until it is killed; a dataflow ends by itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.logs.log_sink import LogSink
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.service.lifeline import when_parent_dies

from .dataflows import SCHEMA, input_rows

_BATCHES, _ROWS = 60, 20
#: So slow that commits have some of the rows each.
_PACE_S = 0.02


class Plan(msgspec.Struct, frozen=True):
    """Addresses of logs; `directory` is for what the program keeps here."""

    role: str
    coordinator: str
    user: str
    directory: str
    source: str
    target: str
    checkpoint: str
    #: A dataflow whose source stops in the middle, until it is killed.
    holds: bool = False


def source_rows() -> list[pa.RecordBatch]:
    return input_rows(7, batches=_BATCHES, size=_ROWS)


def network() -> Network:
    query = Query("doubling")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 100)
    stream.unit("second").with_columns(value=F.col("value") * 2).sink("out")
    return query.network()


def run_dataflow(plan: Plan) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        batches = source_rows()
        for batch in batches[: len(batches) // 2] if plan.holds else batches:
            time.sleep(_PACE_S)
            yield batch
        if plan.holds:
            threading.Event().wait()

    host = LocalProcesses(2, DirectoryCheckpoints(Path(plan.directory)), node_timeout_s=100.0)
    with (
        LogSink(network(), "out", plan.target, coordinator=plan.coordinator, user=plan.user) as out,
        host.start(network(), SGuard(interval_s=0.2), {"in": rows()}, {"out": out}) as run,
    ):
        run.wait()


def run_spark(plan: Plan) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as S

    from peacefs.spark_connector.session import configure
    from peacefs.spark_connector.stream_logs import FORMAT, register

    spark = (
        configure(SparkSession.builder, plan.coordinator)
        .master("local[2,4]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kathmandu")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)
    options = {"coordinator": plan.coordinator, "user": plan.user}
    rows = spark.readStream.format(FORMAT).options(**options, maxRowsPerBatch="60").load(plan.source)
    # Two tasks, between which rows are dealt out: a batch that is repeated has them in another order.
    written = rows.withColumn("value", S.col("value") + 1).repartition(2).writeStream.format(FORMAT)
    query = written.options(**options, checkpointLocation=plan.checkpoint).start(plan.target)
    query.awaitTermination()


if __name__ == "__main__":
    when_parent_dies(0, lambda: os._exit(1))
    chosen = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    {"dataflow": run_dataflow, "spark": run_spark}[chosen.role](chosen)
