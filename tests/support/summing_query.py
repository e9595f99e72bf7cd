"""A stateful query of stock PySpark, which any Python with PySpark can run; it imports nothing of peacefs:

    python summing_query.py SETTINGS INPUT OUTPUT

SETTINGS is a JSON object of Spark's configuration. Each line of its standard input names a checkpoint. For each,
it counts the words of INPUT, one file per batch, in a new Spark context. It writes the query's own report, a JSON
object, to OUTPUT, and then prints a line.
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
