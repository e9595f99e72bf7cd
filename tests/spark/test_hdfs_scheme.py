"""Spark with checkpoint and table on `hdfs://` is exact while a datanode and the coordinator are killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.long_runs import often
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.batches import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
PARTS = often(8, 60)
ROWS = 100
_KILLED_AFTER = 2


def test_query_on_hdfs_is_exact_while_services_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in range(PARTS):
        (source / f"{part}.txt").write_text("".join(f"{row % 7}\n" for row in range(ROWS)))
        os.utime(source / f"{part}.txt", (part + 1, part + 1))
    with (
        LocalCluster(tmp_path / "cluster", datanodes=4, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        at = cluster.hdfs_uri
        session = spark.newSession()
        # Without it, Hadoop's client gives up at the first broken connection to a coordinator that has no standby.
        session.conf.set("dfs.client.retry.policy.enabled", "true")
        session.conf.set("dfs.client.retry.policy.spec", "500,120")
        lines = session.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        query = (
            lines.writeStream.format("parquet")
            .option("checkpointLocation", f"{at}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{at}/table")
        )
        checkpoint = Checkpoint(files, "/checkpoint")
        for member in (cluster.datanodes[0], cluster.coordinator):
            wanted = (checkpoint.committed() or 0) + _KILLED_AFTER
            wait_until(lambda wanted=wanted: (checkpoint.committed() or 0) >= wanted, "batches are committed")
            member.kill()
            cluster.restart(member)
        assert query.awaitTermination(180) and query.exception() is None
        assert checkpoint.committed() == PARTS - 1
        counts = {
            row.value: row["count"]
            for row in session.read.parquet(f"{at}/table").groupBy("value").count().collect()
        }
    assert counts == {str(value): PARTS * len(range(value, ROWS, 7)) for value in range(7)}
