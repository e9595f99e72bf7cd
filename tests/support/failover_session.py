"""Spark sessions for several clusters that share one name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from peacefs.client.control.addresses import NAMESERVICE
from peacefs.spark_connector.session import as_dict, settings

from .failover_cluster import FailoverCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session_of(spark: SparkSession, cluster: FailoverCluster) -> Iterator[SparkSession]:
    """Configure several coordinators as `configure` does, in a session of its own.

    Hadoop caches a client for each name, which the next cluster of that name would get, so the client is closed.
    """
    own = spark.newSession()
    for key, value in as_dict(settings(",".join(cluster.http))).items():
        if key.startswith("spark.hadoop."):
            own.conf.set(key.removeprefix("spark.hadoop."), value)
    try:
        yield own
    finally:
        jvm: Any = own.sparkContext._jvm
        kept = own._jsparkSession.sessionState().newHadoopConf()
        jvm.org.apache.hadoop.fs.Path(f"webhdfs://{NAMESERVICE}/").getFileSystem(kept).close()
