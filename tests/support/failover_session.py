"""Sessions of a Spark for clusters of several coordinators, which all bear one name."""

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
    """Name several coordinators as `configure` does, in a session of their own: the others keep theirs.

    Hadoop keeps a client for each name, which the next cluster of that name would be given: it is closed.
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
