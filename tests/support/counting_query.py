"""A query that counts words of a directory of files, a file a batch, until it is stopped:

    python counting_query.py CHECKPOINT INPUT OUTPUT

CHECKPOINT is a root in a cluster; the query begins a run there. Each batch leaves all counts in OUTPUT/<batch>.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from peacefs.client.addresses import split_uri
from peacefs.spark_connector.runs import begin_run
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
        staged = Path(output, f"{batch}.{id(found)}.tmp")
        staged.write_text(json.dumps(found))
        staged.rename(Path(output, str(batch)))

    run = begin_run(checkpoint)
    print("location", run.location, flush=True)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(put_out)
    query = counts.option("checkpointLocation", run.location).trigger(processingTime="0 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
