"""Reset Spark's interval of state maintenance, which a JVM fixes with the first stateful query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def maintenance_settled_anew(spark: SparkSession) -> Iterator[None]:
    """Let the next query set the interval, and again after the block. No query may run at either end."""
    assert spark.sparkContext._jvm is not None
    stores = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    stores.stop()
    assert not stores.isMaintenanceRunning()
    try:
        yield
    finally:
        stores.stop()
