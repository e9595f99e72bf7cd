"""Spark 4.3, checkpoint format 2 and a file sink, on the local file system alone: a restart that never succeeds.

    python docs/decisions/reproductions/checkpoint_format_2.py 2      fails at every start after the first
    python docs/decisions/reproductions/checkpoint_format_2.py 1      goes on

The first run ends in order. Then `commits/N` of its last batch is removed, which is how things stand when
the query dies between the sink's commit and its own. The second run repeats batch N, which the sink has already
and skips.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions

_STATE_STORE = "spark.sql.streaming.stateStore"


def add_input(directory: Path, number: int) -> None:
    path = directory / f"{number}.txt"
    path.write_text("".join(f"{number * 100 + second} k{second % 7}\n" for second in range(1000)))
    os.utime(path, (1000 + number, 1000 + number))


def run(spark: SparkSession, root: Path) -> None:
    words = functions.split("value", " ")
    counts = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .load(str(root / "in"))
        .select(words[0].cast("int").cast("timestamp").alias("at"), words[1].alias("key"))
        .withWatermark("at", "10 seconds")
        .groupBy(functions.window("at", "20 seconds"), "key")
        .count()
    )
    query = (
        counts.writeStream.format("parquet")
        .option("path", str(root / "out"))
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        print("ran to its end")
    except StreamingQueryException as failure:
        print("failed:", str(failure).splitlines()[0][:200])


def main() -> None:
    version = sys.argv[1]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            f"{_STATE_STORE}.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config(f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled", "true")
        .config(f"{_STATE_STORE}.checkpointFormatVersion", version)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "in").mkdir()
        for number in range(4):
            add_input(root / "in", number)
        run(spark, root)
        commits = root / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink()
        for number in (4, 5):
            add_input(root / "in", number)
            run(spark, root)
    spark.stop()


if __name__ == "__main__":
    main()
