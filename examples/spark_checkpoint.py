"""The smallest streaming query that keeps its state in peacefs.

Start a cluster with `peacefs up`, then run this twice:

    python examples/spark_checkpoint.py [127.0.0.1:9870]

For half a minute it counts the rows of Spark's rate source in windows of ten seconds. The second run continues
where the first one ended: its first batch is not number 0.

An agent that starts it (examples/commands.toml) says with PEACEFS_CHECKPOINT where its checkpoint is.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession, functions

from peacefs.spark_connector.session import configure

_SECONDS = 30


def main() -> None:
    address = sys.argv[1].removeprefix("http://") if len(sys.argv) > 1 else "127.0.0.1:9870"
    location = os.environ.get("PEACEFS_CHECKPOINT", f"webhdfs://{address}/checkpoints/rates")
    builder = SparkSession.builder.master("local[2]").appName("rates").config("spark.sql.shuffle.partitions", 2)
    spark = configure(builder, address).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    counts = (
        rows.withWatermark("timestamp", "5 seconds").groupBy(functions.window("timestamp", "10 seconds")).count()
    )
    query = (
        counts.writeStream.outputMode("append")
        .format("console")
        .option("truncate", False)
        .option("checkpointLocation", location)
        .start()
    )
    query.awaitTermination(_SECONDS)
    query.stop()
    spark.stop()
    print(f"The checkpoint: peacefs ls --recursive {location}")


if __name__ == "__main__":
    main()
