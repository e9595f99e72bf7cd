"""Twelve Spark queries of one trigger interval on one cluster, with a bulk writer beside them and without.

Spark begins the batches of all queries at the same instant, as their intervals are aligned. Each query counts
keys, with state in RocksDB, change logs, and snapshots that a maintenance thread uploads beside the batches. The
policies take turns in one session; what counts is how long batches take, from the queries' own progress. Datanodes
take two chunks each, so that chunks wait for grants.

    python -m benchmarks aligned_queries
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .report import show
from .spark_batches import start_spark

_QUERIES: Final = 12
_INTERVAL_S: Final = 10
_TURN_S: Final = 60
_POLICIES: Final = ("express", "timely")
_BULK_FILE_MB: Final = 256


def main(*, quick: bool = False) -> None:
    queries, turn_s = (3, 25) if quick else (_QUERIES, _TURN_S)
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(
            Path(name) / "cluster", datanodes=3, port=0, coordinator_options=["--streams-per-node", "2"]
        ) as cluster,
    ):
        spark = start_spark(cluster.http_address, Path(name))
        try:
            rows = list(_turns(spark, cluster.http_address, queries, turn_s))
        finally:
            spark.stop()
    show(
        "aligned_queries",
        f"{queries} Spark queries, a trigger every {_INTERVAL_S} s, {turn_s} s for each row",
        rows,
    )


def _turns(spark: SparkSession, address: str, queries: int, turn_s: float) -> Iterator[dict[str, Any]]:
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with PeaceFileSystem(address) as files:
        started = [_start(spark, number) for number in range(queries)]
        time.sleep(2 * _INTERVAL_S)
        for bulk in (False, True):
            for policy in _POLICIES:
                files.change_policy(policy)
                seen = {query.id: _last_batch(query) for query in started}
                with _bulk_beside(files) if bulk else _nothing():
                    time.sleep(turn_s)
                took_ms = sorted(
                    progress["durationMs"]["triggerExecution"]
                    for query in started
                    for progress in query.recentProgress
                    if progress["batchId"] > seen[query.id] and "addBatch" in progress["durationMs"]
                )
                yield {
                    "bulk writer": "yes" if bulk else "no",
                    "policy": policy,
                    "batches": len(took_ms),
                    "median, ms": median(took_ms) if took_ms else "",
                    "p99, ms": took_ms[min(len(took_ms) - 1, int(0.99 * len(took_ms)))] if took_ms else "",
                    "worst, ms": took_ms[-1] if took_ms else "",
                }
        for query in started:
            query.stop()


def _start(spark: SparkSession, number: int) -> StreamingQuery:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 2000).load()
    counts = rows.groupBy((col("value") % 20_000).alias("key")).count()
    return (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", f"/aligned/{number}")
        .trigger(processingTime=f"{_INTERVAL_S} seconds")
        .start()
    )


def _last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _bulk_beside(files: PeaceFileSystem) -> Iterator[None]:
    """Write large files without a pause."""
    done, piece = threading.Event(), bytes(1_000_000)

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            with files.open_for_writing(f"/bulk/{number % 2}", overwrite=True, write_class="bulk") as sink:
                for _ in range(_BULK_FILE_MB):
                    if done.is_set():
                        break
                    sink.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()
