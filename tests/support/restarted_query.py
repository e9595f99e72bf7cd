"""Queries that are started again and again on copies of a checkpoint; nothing of peacefs is imported.

`QueryRunner` runs them in a session. As a program it serves another Python's Spark: each line of its input is a
JSON object `{"query": ..., "source": ..., "checkpoint": ..., "settings": ..., "fails_at": ...}`, each line of its
output the outcome:

    python restarted_query.py
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAMING = "spark.sql.streaming."
_STATE_STORE = _STREAMING + "stateStore."
_PROVIDER = "org.apache.spark.sql.execution.streaming.state."
#: Compact sources' logs and write snapshots of state every third batch, snapshots as early as allowed.
_ALWAYS = {
    _STREAMING + "fileSource.log.compactInterval": "3",
    _STREAMING + "noDataMicroBatches.enabled": "false",
    _STATE_STORE + "minDeltasForSnapshot": "3",
    _STATE_STORE + "maintenanceInterval": "100ms",
    "spark.sql.shuffle.partitions": "2",
}
#: Spark 3.5.0 cannot maintain a store without a directory, and then waits a minute for each store in use.
_OF_3_5 = {_STATE_STORE + "maintenanceInterval": "3s"}
#: State store layouts. Spark 3.5 does not have format 2.
LAYOUTS: dict[str, dict[str, str]] = {
    "rocksdb": {"providerClass": _PROVIDER + "RocksDBStateStoreProvider", "checkpointFormatVersion": "1"},
    "rocksdb format 2": {"providerClass": _PROVIDER + "RocksDBStateStoreProvider", "checkpointFormatVersion": "2"},
    "rocksdb snapshots": {
        "providerClass": _PROVIDER + "RocksDBStateStoreProvider",
        "checkpointFormatVersion": "1",
        "rocksdb.changelogCheckpointing.enabled": "false",
    },
    "records": {"providerClass": _PROVIDER + "HDFSBackedStateStoreProvider", "checkpointFormatVersion": "1"},
}


@dataclass
class Outcome:
    """The outcome of a start: the rows of each batch that reached the sink, and its failure, if there was one."""

    batches: dict[int, list[list[Any]]] = field(default_factory=dict)
    failure: str | None = None


class QueryRunner:
    """Starts a query in a given session, and runs it to the end of its input."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, query: str, source: str, checkpoint: str, fails_at: int | None = None) -> Outcome:
        """`query` is `copy`, which has no state, `join`, or one of LAYOUTS. The sink fails in batch `fails_at`."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        settings = {_STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "true"} | _ALWAYS
        if self._spark.version.startswith("3."):
            settings |= _OF_3_5
        layout = LAYOUTS["rocksdb"] | LAYOUTS.get(query, {})
        settings |= {_STATE_STORE + key: value for key, value in layout.items()}
        before = {key: self._spark.conf.get(key, None) for key in settings}
        outcome = Outcome()

        def put_out(rows: DataFrame, batch: int) -> None:
            if batch == fails_at:
                raise RuntimeError("the sink is told to fail")
            outcome.batches[batch] = sorted(list(row) for row in rows.collect())

        try:
            for key, value in settings.items():
                self._spark.conf.set(key, value)
            writer = self._frame(query, source).writeStream.outputMode(
                "append" if query in ("copy", "join") else "update"
            )
            started = writer.foreachBatch(put_out).option("checkpointLocation", f"file://{checkpoint}")
            running = started.trigger(availableNow=True).start()
            running.awaitTermination()
        except (PySparkException, Py4JError) as failure:
            outcome.failure = str(failure)
        finally:
            for key, old in before.items():
                if old is None:
                    self._spark.conf.unset(key)
                else:
                    self._spark.conf.set(key, old)
        return outcome

    def _frame(self, query: str, source: str) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        if query == "copy":
            return lines
        if query == "join":
            others = self._spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
            return lines.dropDuplicates(["value"]).join(others, "value")
        return lines.groupBy("value").count()


def serve() -> None:
    """Answer each line of standard input with one line on standard output."""
    from pyspark.sql import SparkSession

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    runner = QueryRunner(spark)
    answers.write(json.dumps({"version": spark.version}) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(asdict(runner.run(**asked))) + "\n")
    spark.stop()


if __name__ == "__main__":
    assert Path(__file__).exists()
    serve()
