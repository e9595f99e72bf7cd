"""Two stateful queries of stock PySpark with checkpoints in a directory; nothing of peacefs is imported:

    python -m support.mounted_query PLAN

PLAN is a JSON object: `source`, a directory of text files that are read one a batch; `checkpoints` and `output`,
directories. One query keeps its state with the HDFS-backed provider, the other in RocksDB. For each batch a query
writes `OUTPUT/QUERY/BATCH`, the counts of all words so far. The process ends when all files are read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_PROVIDER = "org.apache.spark.sql.execution.streaming.state."
PROVIDERS = {"records": "HDFSBackedStateStoreProvider", "rocksdb": "RocksDBStateStoreProvider"}


def main(plan: str) -> None:
    told = json.loads(Path(plan).read_text())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "500ms")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    started = []
    for name, provider in PROVIDERS.items():
        output = Path(told["output"], name)
        output.mkdir(parents=True, exist_ok=True)
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _PROVIDER + provider)

        def put_out(counts: Any, batch: int, output: Path = output) -> None:
            rows = {row["value"]: row["count"] for row in counts.collect()}
            written = output / f".{batch}"
            written.write_text(json.dumps(rows))
            written.replace(output / str(batch))

        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{told['source']}")
        counts = lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(put_out)
        checkpoint = f"file://{told['checkpoints']}/{name}"
        started.append(counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    for query in started:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
