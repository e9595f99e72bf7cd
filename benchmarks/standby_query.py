"""Count rows by key as a supervised driver with its checkpoint on peacefs: `standby_query.py CHECKPOINT`.

It begins its run by the same call as any query. The driver of a standby waits in that call.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from peacefs.client.control.addresses import split_uri
from peacefs.spark_connector.runs import begin_run
from peacefs.spark_connector.session import configure


def main(checkpoint: str) -> None:
    address, _ = split_uri(checkpoint)
    spark = (
        configure(SparkSession.builder, address.webhdfs)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark.sparkContext._jvm
    java = jvm.java.lang.ProcessHandle.current().pid()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    counts = rows.selectExpr("cast(value % 1000 AS string) AS key").groupBy("key").count()
    run = begin_run(checkpoint)
    print("driver", os.getpid(), java, run.number, flush=True)
    writing = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", run.location)
    writing.trigger(processingTime="500 milliseconds").start().awaitTermination()


_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

if __name__ == "__main__":
    main(*sys.argv[1:])
