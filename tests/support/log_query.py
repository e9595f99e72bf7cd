"""A Spark query from one stream log to another, until it is killed: `python -m support.log_query PLAN`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as S

from peacefs.service.lifeline import when_parent_dies
from peacefs.spark_connector.session import configure
from peacefs.spark_connector.stream_logs import FORMAT, register

from .log_plan import LogPlan


def run(plan: LogPlan) -> None:
    spark = (
        configure(SparkSession.builder, plan.coordinator)
        .master("local[2,4]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kathmandu")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)
    options = {"coordinator": plan.coordinator, "user": plan.user}
    # Spark starts Python processes for each batch, so there are few batches.
    rows = spark.readStream.format(FORMAT).options(**options, maxRowsPerBatch="200").load(plan.source)
    # Two tasks that share the rows, so that a repeated batch has them in another order.
    written = rows.withColumn("value", S.col("value") + 1).repartition(2).writeStream.format(FORMAT)
    query = written.options(**options, checkpointLocation=plan.checkpoint).start(plan.target)
    query.awaitTermination()


if __name__ == "__main__":
    when_parent_dies(0, lambda: os._exit(1))
    run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LogPlan))
