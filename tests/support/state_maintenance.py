"""Spark's maintenance of state: a JVM settles how often it comes with the first query that keeps some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def maintenance_settled_anew(spark: SparkSession) -> Iterator[None]:
    """Have the next query settle it, and the next one after the block again. No query may run at either end."""
    assert spark.sparkContext._jvm is not None
    stores = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    stores.stop()
    assert not stores.isMaintenanceRunning()
    try:
        yield
    finally:
        stores.stop()
