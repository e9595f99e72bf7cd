"""A query that counts words, one input file per batch, and writes all counts to OUTPUT/<batch>:

    python counting_query.py CHECKPOINT INPUT OUTPUT
    python counting_query.py --supervised LOCATION INPUT OUTPUT

CHECKPOINT is a root in a cluster; the query begins a run there and continues until it is stopped. LOCATION comes
from a supervisor; a standby first waits for its run there. A supervised query is slow and ends after the last
file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from peacefs.client.control.addresses import split_uri
from peacefs.spark_connector.runs import begin_run
from peacefs.spark_connector.session import configure


def start(spark: SparkSession, location: str, source: str, output: str, *, supervised: bool) -> StreamingQuery:
    def put_out(counts: DataFrame, batch: int) -> None:
        found = {row["value"]: row["count"] for row in counts.collect()}
        staged = Path(output, f"{batch}.{time.monotonic_ns()}.tmp")
        staged.write_text(json.dumps(found))
        staged.rename(Path(output, str(batch)))
        if supervised:
            time.sleep(0.5)

    trigger: dict[str, Any] = {"availableNow": True} if supervised else {"processingTime": "0 seconds"}
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(put_out)
    return counts.option("checkpointLocation", location).trigger(**trigger).start()


def main(checkpoint: str, source: str, output: str, *, supervised: bool) -> None:
    address, _ = split_uri(checkpoint)
    spark = (
        configure(SparkSession.builder, address.webhdfs)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    location = begin_run(checkpoint).location
    print("location", location, flush=True)
    start(spark, location, source, output, supervised=supervised).awaitTermination()


if __name__ == "__main__":
    main(*[word for word in sys.argv[1:] if word != "--supervised"], supervised="--supervised" in sys.argv)
