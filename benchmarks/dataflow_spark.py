"""Run the queries of `dataflow` as micro-batches of Spark, beside nodes that recover by SGuard, on the same cores.

- *Throughput*: filter, key by a string, count and sum by windows of ten seconds. Spark reads the same rows from
  Parquet files in the page cache, 16 batches of 65,536 rows a micro-batch, with state in RocksDB. The time is that
  which it reports for micro-batches but the first. The node gets the rows from memory.
- *Latency*: both are offered as many rows a second. Over three nodes it is the time until the window that a row
  completes is at the sink. Of Spark, to which ten files a second are given, it is that from when a file appears
  until the program has the counts by key of the micro-batch that took it.

Checkpoints of both are in peacefs, three replicas.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.techniques.sguard import SGuard

from . import dataflow
from .report import show
from .spark_batches import start_spark
from .stateful_query import PROVIDERS

_FILES_A_BATCH = 16
_PARTITIONS = 2
#: Rows per second for measurements of latency.
_RATES = (20_000, 200_000)
_KEYS = 1000
_OFFERS_A_SECOND = 10
_SPARK_SCHEMA = "key string, at timestamp, ok boolean, value long"


def main(*, quick: bool = False) -> None:
    batches, seconds = (64, 6.0) if quick else (320, 20.0)
    made = dataflow.key_rows(_KEYS, 30)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalCluster(directory / "cluster", datanodes=3, port=0) as cluster:
            spark = start_spark(cluster.http_address, directory)
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS["RocksDB"])
            spark.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS))
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            checkpoint = f"{cluster.webhdfs_uri}/spark"
            try:
                of_spark = _throughput(spark, directory, checkpoint, dataflow.repeated(made, batches))
                late_in_spark = {
                    rate: _latencies(spark, directory, checkpoint, made[0], rate, seconds) for rate in _RATES
                }
            finally:
                spark.stop()
            with closing(PeaceCheckpoints(cluster.http_address, "/node")) as store:
                of_a_node = dataflow.speed(
                    dataflow.counting(), SGuard(interval_s=1.0), store, dataflow.repeated(made, batches), []
                )
            _show_throughput(of_a_node, of_spark)
            late = []
            for rate in _RATES:
                with closing(PeaceCheckpoints(cluster.http_address, f"/nodes-{rate}")) as store:
                    of_nodes = dataflow.latencies(store, SGuard(interval_s=1.0), made[0], rate, seconds)
                late.append(_latency("three nodes, SGuard", rate, of_nodes))
                late.append(_latency("micro-batches of Spark", rate, late_in_spark[rate]))
            show("dataflow_spark_latency", "Latency of nodes and of micro-batches", late)


def _show_throughput(of_a_node: float, of_spark: dict[str, Any]) -> None:
    found = [
        {"way": "a node, SGuard", "tuples/s": of_a_node, "of Spark": of_a_node / of_spark["tuples/s"]},
        {"way": "micro-batches of Spark", "tuples/s": of_spark["tuples/s"], "of Spark": 1.0},
    ]
    found[0] |= {"micro-batches": "", "median ms": ""}
    found[1] |= {key: of_spark[key] for key in ("micro-batches", "median ms")}
    show("dataflow_spark_throughput", "Filter, key by string, count and sum by window", found)


def _latency(way: str, rate: int, late: list[float]) -> dict[str, Any]:
    p50, p99 = np.percentile(late, [50, 99])
    return {"way": way, "tuples/s": rate, "p50 ms": p50, "p99 ms": p99, "worst ms": max(late)}


def _throughput(
    spark: SparkSession, directory: Path, checkpoint: str, rows: Iterator[pa.RecordBatch]
) -> dict[str, Any]:
    """Return rows per second, and the durations of micro-batches."""
    source = directory / "rows"
    source.mkdir()
    for number, batch in enumerate(rows):
        _write(batch, source / f"{number:06}.parquet")
    stream = spark.readStream.schema(_SPARK_SCHEMA).option("maxFilesPerTrigger", _FILES_A_BATCH)
    counted = (
        stream.parquet(f"file://{source}")
        .withWatermark("at", "0 seconds")
        .filter("ok")
        .groupBy("key", F.window("at", "10 seconds"))
        .agg(F.count("*"), F.sum("value"))
    )
    query = (
        counted.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", f"{checkpoint}/throughput")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reports = [msgspec.json.decode(report.json) for report in query.recentProgress]
    batches = [report for report in reports if report["numInputRows"]][1:]
    took_ms = [report["durationMs"]["triggerExecution"] for report in batches]
    return {
        "tuples/s": sum(report["numInputRows"] for report in batches) / sum(took_ms) * 1000,
        "micro-batches": len(batches),
        "median ms": float(np.median(took_ms)),
    }


def _latencies(
    spark: SparkSession, directory: Path, checkpoint: str, rows: pa.RecordBatch, rate: float, seconds: float
) -> list[float]:
    """Return the sorted latencies in ms, of the latest row of each key in each micro-batch."""
    source, hidden = directory / f"offered-{rate:.0f}", directory / f"hidden-{rate:.0f}"
    source.mkdir()
    hidden.mkdir()
    late: list[float] = []
    answered = threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        shown = [row[0] for row in batch.select("latest").collect()]
        now = time.time()
        late.extend((now - latest.timestamp()) * 1000 for latest in shown if isinstance(latest, datetime))
        answered.set()

    size = int(rate / _OFFERS_A_SECOND)

    def offer(number: int) -> None:
        part = rows.slice(number * size % max(rows.num_rows - size, 1), size)
        now = pa.array(np.full(part.num_rows, int(time.time() * 1_000_000))).cast(TIME)
        name = f"{number:06}.parquet"
        _write(part.set_column(1, "at", now), hidden / name)
        (hidden / name).rename(source / name)

    query = (
        spark.readStream.schema(_SPARK_SCHEMA)
        .parquet(f"file://{source}")
        .filter("ok")
        .groupBy("key")
        .agg(F.count("*"), F.sum("value"), F.max("at").alias("latest"))
        .writeStream.foreachBatch(take)
        .outputMode("update")
        .option("checkpointLocation", f"{checkpoint}/latency-{rate:.0f}")
        .start()
    )
    # The first micro-batch warms up Spark.
    offer(0)
    while not answered.wait(1.0):
        error = query.exception()
        if error is not None:
            raise error
    late.clear()
    begun = time.monotonic()
    for number in range(1, int(seconds * _OFFERS_A_SECOND)):
        time.sleep(max(begun + number / _OFFERS_A_SECOND - time.monotonic(), 0))
        offer(number)
    query.processAllAvailable()
    query.stop()
    return sorted(late)


def _write(rows: pa.RecordBatch, path: Path) -> None:
    """Write rows with times in Spark's format."""
    utc = rows.column("at").cast(pa.timestamp("us", tz="UTC"))
    pyarrow.parquet.write_table(pa.Table.from_batches([rows.set_column(1, "at", utc)]), path)
