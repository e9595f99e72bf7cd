"""A supervised query that counts words of a directory of files, a file a batch, and ends after the last:

    python supervised_words.py CHECKPOINT INPUT OUTPUT

CHECKPOINT is the location of its run. Each batch takes a while and leaves all counts in OUTPUT/<batch>.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from peacefs.client.addresses import split_uri
from peacefs.spark_connector.session import configure


def main(checkpoint: str, source: str, output: str) -> None:
    address, _ = split_uri(checkpoint)
    spark = (
        configure(SparkSession.builder, address.webhdfs)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def put_out(counts: DataFrame, batch: int) -> None:
        found = {row["value"]: row["count"] for row in counts.collect()}
        staged = Path(output, f"{batch}.{time.monotonic_ns()}.tmp")
        staged.write_text(json.dumps(found))
        staged.rename(Path(output, str(batch)))
        time.sleep(0.5)

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(put_out)
    counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
