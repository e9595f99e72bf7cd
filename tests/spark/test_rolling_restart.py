"""Datanodes are stopped by SIGTERM one after the other, during a Spark query: no batch fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.growing_source import GrowingSource
from support.local_members import is_gone
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.batches import Checkpoint
from peacefs.spark_connector.session import as_dict, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


@pytest.mark.long("restarts every datanode")
def test_restart_of_each_datanode_without_maintenance_fails_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    source = GrowingSource(tmp_path / "source")
    with LocalCluster(tmp_path / "cluster", datanodes=4, port=0) as cluster:
        for key, value in as_dict(settings(cluster.http_address.removeprefix("http://"))).items():
            if key.startswith("spark.hadoop."):
                spark.conf.set(key.removeprefix("spark.hadoop."), value)
        source.add()
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(f"file://{source.directory}")
            .groupBy("value")
            .count()
            .writeStream.format("memory")
            .queryName("counts_over_a_restart")
            .outputMode("complete")
            .option("checkpointLocation", f"{cluster.webhdfs_uri}/checkpoint")
            .start()
        )
        try:
            with PeaceFileSystem(cluster.http_address) as files:
                checkpoint = Checkpoint(files, "/checkpoint")

                def is_committed() -> bool:
                    done = checkpoint.committed()
                    return query.exception() is not None or (done is not None and done >= source.files - 1)

                def is_whole() -> bool:
                    status = files.cluster_status()
                    return not status["chunks"]["under_replicated"] and all(
                        each["state"] == "alive" for each in status["datanodes"]
                    )

                wait_until(is_committed, "the first batch is committed")
                for datanode in cluster.datanodes:
                    # It is running a batch when the datanode is told to stop.
                    for _ in range(3):
                        source.add()
                    datanode.terminate()
                    wait_until(partial(is_gone, datanode), "it has stopped")
                    wait_until(is_committed, f"batch {source.files - 1} is committed")
                    assert query.exception() is None
                    cluster.restart(datanode)
                    wait_until(is_whole, "all is replicated again")
        finally:
            query.stop()
    counts = {row.value: row["count"] for row in spark.table("counts_over_a_restart").collect()}
    assert counts == source.counts()
