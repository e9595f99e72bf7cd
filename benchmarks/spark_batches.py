"""What a micro-batch costs with its checkpoint on peacefs (r = 3) and on `file://`, alternating in one run.

One stateful query (a count per key, 8 shuffle partitions) in four variants: state in Spark's HDFS-backed store or
in RocksDB with change logs, checkpoint on peacefs or on local files of the same disk. The variants take turns, a
few batches each; their first turns, and the first batch of each turn, which loads the state, are not counted.

The two do not promise the same: peacefs acknowledges after fsync on three datanodes, `file://` never syncs.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from peacefs.client.local_cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

from .report import show

_PROVIDERS = {
    "HDFS-backed": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_MEASURES = ("triggerExecution", "addBatch", "walCommit", "commitOffsets")
_PARTITIONS = 8
_ROWS_A_BATCH = 2000
_KEYS = 5000
# No new round of turns is begun after this.
_SECONDS_MAX = 420.0


def main(*, quick: bool = False) -> None:
    counted, turn = (4, 2) if quick else (30, 6)
    began = time.monotonic()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalCluster(directory / "cluster", datanodes=4, port=0) as cluster:
            spark = _start_spark(cluster, directory)
            try:
                variants = _variants(cluster, directory)
                for variant in variants:
                    variant.take_turn(spark, rng, turn)
                while len(variants[0].batches) < counted and time.monotonic() - began < _SECONDS_MAX:
                    for variant in rng.sample(variants, len(variants)):
                        variant.batches += variant.take_turn(spark, rng, turn)
            finally:
                spark.stop()
    show("spark_batches", f"stateful micro-batches, {_PARTITIONS} partitions: median ms", _rows(variants))


@dataclass
class _Variant:
    """One state store with its checkpoint in one place, and the durations (ms) of its batches."""

    store: str
    place: str
    input: Path
    checkpoint: str
    batches: list[dict[str, int]] = field(default_factory=list)
    _files: int = 0

    def take_turn(self, spark: SparkSession, rng: random.Random, batches: int) -> list[dict[str, int]]:
        """Runs `batches` batches and one before them, whose durations are left out."""
        for _ in range(batches + 1):
            self._add_input(rng)
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _PROVIDERS[self.store])
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{self.input}")
        query = (
            lines.groupBy(F.col("value").alias("key"))
            .count()
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        reports = [json.loads(progress.json) for progress in query.recentProgress]
        return [report["durationMs"] for report in reports if report["numInputRows"]][1:]

    def median_ms(self, measure: str) -> float:
        return statistics.median(batch.get(measure, 0) for batch in self.batches)

    def _add_input(self, rng: random.Random) -> None:
        path = self.input / f"{self._files:06}.txt"
        path.write_text("".join(f"key-{rng.randrange(_KEYS)}\n" for _ in range(_ROWS_A_BATCH)))
        self._files += 1
        # Spark takes files in the order of these.
        os.utime(path, (self._files, self._files))


def _start_spark(cluster: LocalCluster, directory: Path) -> SparkSession:
    os.environ.update(java_environment(find_java(), directory / "java"), SPARK_LOCAL_IP="127.0.0.1")
    session: SparkSession = (
        configure(SparkSession.builder, cluster.http_address)
        .master("local[2]")
        .config("spark.sql.shuffle.partitions", str(_PARTITIONS))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _variants(cluster: LocalCluster, directory: Path) -> list[_Variant]:
    places = {"peacefs": f"{cluster.webhdfs_uri}/benchmark", "file://": f"file://{directory}/checkpoints"}
    variants: list[_Variant] = []
    for store in _PROVIDERS:
        for place, root in places.items():
            source = directory / f"input-{len(variants)}"
            source.mkdir()
            variants.append(_Variant(store, place, source, f"{root}/{store}"))
    return variants


def _rows(variants: list[_Variant]) -> list[dict[str, Any]]:
    local = {
        variant.store: variant.median_ms("triggerExecution") for variant in variants if variant.place == "file://"
    }
    return [
        {
            "state store": variant.store,
            "checkpoint": variant.place,
            "batches": len(variant.batches),
            **{measure: variant.median_ms(measure) for measure in _MEASURES},
            "of file://": variant.median_ms("triggerExecution") / local[variant.store],
        }
        for variant in variants
    ]
