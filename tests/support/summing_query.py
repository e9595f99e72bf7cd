"""A stateful query of stock PySpark, to be run by any Python that has one; nothing of peacefs is imported:

    python summing_query.py SETTINGS INPUT OUTPUT

SETTINGS is a JSON object of Spark's configuration. For each checkpoint that a line of its standard input names it
counts the words of INPUT, a file a batch, until all are read, in a Spark context that begins and ends with that.
It puts what the query says of it, a JSON object, into OUTPUT, and then prints a line.
"""

import json
import sys
from pathlib import Path
from typing import Any


def run(told: dict[str, str], checkpoint: str, source: str) -> dict[str, Any]:
    import pyspark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    own = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    for key, value in {**told, **own}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    result: dict[str, Any] = {}

    def put_out(counts: Any, batch: int) -> None:
        result["batch"] = batch
        result["counts"] = {row["value"]: row["count"] for row in counts.collect()}

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(put_out)
    query = counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    # Those of RocksDB are no entries of Spark's registry of settings, in any version.
    registered = [key for key in told if key.startswith("spark.sql.") and ".rocksdb." not in key]
    result["unknown"] = [key for key in registered if not spark.conf.isModifiable(key)]
    assert spark._jvm is not None
    result["connections"] = spark._jvm.java.lang.System.getProperty("http.maxConnections")
    result["version"] = pyspark.__version__
    spark.stop()
    return result


def main(settings: str, source: str, output: str) -> None:
    told = json.loads(Path(settings).read_text())
    for line in sys.stdin:
        Path(output).write_text(json.dumps(run(told, line.strip(), source)))
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
