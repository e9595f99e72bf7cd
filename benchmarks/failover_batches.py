"""Run a Spark query with its checkpoint on peacefs, kill the leader, and measure the longest batch."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from peacefs.client.control.addresses import NAMESERVICE
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import PeacefsError
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

from .failover_cluster import FailoverCluster
from .stateful_query import StatefulQuery

_BATCHES_BETWEEN = 12
_DATANODES = 5


def longest_batch(directory: Path, failovers: int) -> list[dict[str, object]]:
    """Return the batches during which a leader was killed, and the others."""
    place = directory / "batches"
    place.mkdir()
    with FailoverCluster(place, _DATANODES, 0) as cluster:
        spark = _start_spark(cluster, directory)
        try:
            return [_measure(cluster, spark, directory, failovers)]
        finally:
            spark.stop()


def _measure(cluster: FailoverCluster, spark: SparkSession, directory: Path, failovers: int) -> dict[str, object]:
    rng = random.Random(1)
    checkpoint = f"webhdfs://{NAMESERVICE}/checkpoint"
    query = StatefulQuery(spark, "RocksDB", 2, directory / "input", checkpoint)
    for _ in range((failovers + 1) * _BATCHES_BETWEEN):
        query.add_input(rng)
    ended = threading.Event()
    killed_s: list[float] = []

    def kill() -> None:
        for _ in range(failovers):
            seen = len(_committed(cluster))
            while len(_committed(cluster)) < seen + _BATCHES_BETWEEN // 2 and not ended.is_set():
                time.sleep(0.2)
            leader, _other = cluster.settle()
            if ended.is_set():
                return
            killed_s.append(time.time())
            cluster.mend("killed", cluster.strike("killed", leader))

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        turn = query.start().turn()
    finally:
        ended.set()
        killing.join()
    seconds = [batch["durationMs"]["triggerExecution"] / 1000 for batch in turn.batches]
    return {
        "batches": len(seconds),
        "leaders killed": len(killed_s),
        "p50": round(statistics.median(seconds), 2),
        "longest": [round(each, 2) for each in sorted(seconds)[-max(1, len(killed_s)) :]],
        "load": round(os.getloadavg()[0], 1),
    }


def _committed(cluster: FailoverCluster) -> list[str]:
    """Return the number of committed batches, whoever leads."""
    with PeaceFileSystem(cluster.addresses, "root") as files:
        try:
            return [entry.name for entry in files.list("/checkpoint/commits")]
        except PeacefsError:
            # The query has not begun, or nobody leads at the moment.
            return []


def _start_spark(cluster: FailoverCluster, directory: Path) -> SparkSession:
    os.environ.update(
        java_environment(find_java(), directory / "java"),
        **scratch_environment(directory / "scratch"),
        SPARK_LOCAL_IP="127.0.0.1",
    )
    session: SparkSession = (
        configure(SparkSession.builder, cluster.addresses)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
