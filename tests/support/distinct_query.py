"""A stateful query of stock PySpark with source, checkpoint and table under one URI, without peacefs:

    python distinct_query.py URI RESULT

It writes the distinct lines of URI/source to URI/table, one source file per batch, and continues from
URI/checkpoint. When all files are read, it writes the rows of the table to the local file RESULT, as JSON.
"""

import json
import sys
from pathlib import Path


def main(uri: str, result: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.hadoop.dfs.client.retry.policy.enabled", "true")
        .config("spark.hadoop.dfs.client.retry.policy.spec", "500,120")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{uri}/source")
    writer = lines.dropDuplicates(["value"]).writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{uri}/checkpoint").start(f"{uri}/table").awaitTermination()
    rows = [row.value for row in spark.read.parquet(f"{uri}/table").collect()]
    Path(result).write_text(json.dumps({"version": spark.version, "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
