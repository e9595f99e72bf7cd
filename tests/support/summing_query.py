"""A stateful query of stock PySpark, to be run by any Python that has one; nothing of peacefs is imported:

    python summing_query.py SETTINGS CHECKPOINT INPUT OUTPUT

SETTINGS is a JSON object of Spark's configuration. Counts the words of INPUT, a file a batch, until all are read,
and puts what this run says of it, a JSON object, into OUTPUT.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(settings: str, checkpoint: str, source: str, output: str) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    told = json.loads(Path(settings).read_text())
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
    Path(output).write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
