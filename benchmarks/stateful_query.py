"""A stateful counting query, run for a few batches at a time, with Spark's reports of its batches."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

_PREFIX = "org.apache.spark.sql.execution.streaming.state."
PROVIDERS = {
    "HDFS-backed": _PREFIX + "HDFSBackedStateStoreProvider",
    "RocksDB": _PREFIX + "RocksDBStateStoreProvider",
}
_ROWS_A_BATCH = 2000
_KEYS = 5000

#: A batch's StreamingQueryProgress.
Progress = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """The time from a start to the first commit (ms), and the batches after that commit."""

    restart_ms: float
    batches: list[Progress]


@dataclass
class StatefulQuery:
    """Counts keys, one input file per batch. Keys are padded by `key_bytes` digits that hardly compress."""

    session: SparkSession
    store: str
    partitions: int
    input: Path
    checkpoint: str
    key_bytes: int = 0
    _files: int = field(default=0)

    def add_input(self, rng: random.Random, rows: int = _ROWS_A_BATCH, keys: int = _KEYS) -> None:
        self.input.mkdir(exist_ok=True)
        path = self.input / f"{self._files:06}.txt"
        path.write_text("".join(f"key-{rng.randrange(keys)}\n" for _ in range(rows)))
        self._files += 1
        # Spark reads files in the order of their modification times.
        os.utime(path, (self._files, self._files))

    def start(self) -> Started:
        """Start to read all available input. From here on, the session's settings are this query's."""
        self.session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[self.store])
        self.session.conf.set("spark.sql.shuffle.partitions", str(self.partitions))
        lines = self.session.readStream.option("maxFilesPerTrigger", 1).text(f"file://{self.input}")
        began = time.time()
        query = (
            lines.groupBy(self._key().alias("key"))
            .count()
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        return Started(query, began)

    def _key(self) -> Any:
        digests = [F.sha2(F.concat("value", F.lit(f"/{part}")), 256) for part in range(self.key_bytes // 64)]
        return F.concat("value", *digests)


@dataclass(frozen=True)
class Started:
    query: StreamingQuery
    began: float

    def turn(self) -> Turn:
        """Wait for the end of the input. Raise the error that stopped the query."""
        self.query.awaitTermination()
        reports = [msgspec.json.decode(report.json) for report in self.query.recentProgress]
        batches = [report for report in reports if report["numInputRows"]]
        first = batches[0]
        triggered = datetime.fromisoformat(first["timestamp"]).timestamp()
        took_ms = first["durationMs"]["triggerExecution"]
        return Turn((triggered - self.began) * 1000 + took_ms, batches[1:])
