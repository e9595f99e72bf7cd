"""Run the query of `dataflow` as micro-batches of Spark, beside a node that recovers by SGuard, on the same cores.

- *Throughput*: filter, key by a string, count and sum by windows of ten seconds. Spark reads the same rows from
  Parquet files in the page cache, 16 batches of 65,536 rows a micro-batch, with state in RocksDB. What counts is
  the time that it reports for micro-batches but the first. The node gets the rows from memory.
- *Latency*: rows are offered ten times a second at the same rate to both. Of Spark it is the time from when a row
  is offered, as a file that appears, until the micro-batch that counts it by key is handed out.

Checkpoints of both are in peacefs, three replicas.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peacefs.dataflow.model.stream_type import TIME

from .report import show
from .stateful_query import PROVIDERS

_FILES_A_BATCH = 16
_PARTITIONS = 2
#: Rows a second of the measurement of latencies.
RATE = 20_000.0
_OFFERS_A_SECOND = 10
_SPARK_SCHEMA = "key string, at timestamp, ok boolean, value long"


def throughput(
    spark: SparkSession, directory: Path, checkpoint: str, rows: Iterator[pa.RecordBatch]
) -> dict[str, Any]:
    """Return rows a second, and how long micro-batches took."""
    source = directory / "rows"
    source.mkdir()
    for number, batch in enumerate(rows):
        pyarrow.parquet.write_table(pa.Table.from_batches([batch]), source / f"{number:06}.parquet")
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


def latencies(
    spark: SparkSession, directory: Path, checkpoint: str, rows: pa.RecordBatch, seconds: float
) -> list[float]:
    """Return the latencies of keys in ms, of the latest row of each key in each micro-batch, ascending."""
    source, hidden = directory / "offered", directory / "hidden"
    source.mkdir()
    hidden.mkdir()
    late: list[float] = []
    answered = threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        shown = [row[0] for row in batch.select("latest").collect()]
        now = time.time()
        late.extend((now - latest.timestamp()) * 1000 for latest in shown if isinstance(latest, datetime))
        answered.set()

    size = int(RATE / _OFFERS_A_SECOND)

    def offer(number: int) -> None:
        part = rows.slice(number * size % max(rows.num_rows - size, 1), size)
        at = pa.array(np.full(part.num_rows, int(time.time() * 1_000_000))).cast(TIME)
        name = f"{number:06}.parquet"
        utc = part.set_column(1, "at", at.cast(pa.timestamp("us", tz="UTC")))
        pyarrow.parquet.write_table(pa.Table.from_batches([utc]), hidden / name)
        (hidden / name).rename(source / name)

    query = (
        spark.readStream.schema(_SPARK_SCHEMA)
        .parquet(f"file://{source}")
        .filter("ok")
        .groupBy("key")
        .agg(F.count("*"), F.sum("value"), F.max("at").alias("latest"))
        .writeStream.foreachBatch(take)
        .outputMode("update")
        .option("checkpointLocation", f"{checkpoint}/latency")
        .start()
    )
    # The first micro-batch is that of Spark's warming up.
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


def compare(
    spark: SparkSession,
    directory: Path,
    checkpoint: str,
    *,
    rows: Callable[[int], Iterator[pa.RecordBatch]],
    node_speed: Callable[[Iterator[pa.RecordBatch]], float],
    node_latencies: Callable[[float], Sequence[float]],
    batches: int,
    seconds: float,
) -> None:
    """Show both tables. `node_speed` and `node_latencies` measure a node of ours with rows, and at a rate."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS["RocksDB"])
    spark.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    of_spark = throughput(spark, directory, checkpoint, rows(batches))
    ours = node_speed(rows(batches))
    found = [
        {"way": "a node, SGuard", "tuples/s": ours, "of Spark": ours / of_spark["tuples/s"]},
        {"way": "micro-batches of Spark", "tuples/s": of_spark["tuples/s"], "of Spark": 1.0},
    ]
    found[0] |= {"micro-batches": "", "median ms": ""}
    found[1] |= {key: of_spark[key] for key in ("micro-batches", "median ms")}
    show("dataflow_spark_throughput", "Filter, key by string, count and sum by window", found)
    sample = next(itertools.islice(rows(1), 1))
    late = []
    for way, each in (
        ("three nodes, SGuard", node_latencies(RATE)),
        ("micro-batches of Spark", latencies(spark, directory, checkpoint, sample, seconds)),
    ):
        p50, p99 = np.percentile(each, [50, 99])
        late.append({"way": way, "p50 ms": float(p50), "p99 ms": float(p99), "worst ms": float(max(each))})
    show("dataflow_spark_latency", f"Latency at {RATE:,.0f} tuples a second", late)
