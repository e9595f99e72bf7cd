"""With the connector's settings a query survives a restart of the coordinator that would stop it otherwise."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.batches import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PARTS = 8
ROWS = 100


def test_a_query_survives_a_coordinator_that_is_killed_and_starts_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in range(PARTS):
        (source / f"{part}.txt").write_text("".join(f"{row % 7}\n" for row in range(ROWS)))
        os.utime(source / f"{part}.txt", (part + 1, part + 1))
    with (
        LocalCluster(tmp_path / "cluster", 3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        query = (
            lines.groupBy("value")
            .count()
            .writeStream.format("memory")
            .queryName("counts")
            .outputMode("complete")
            .option("checkpointLocation", f"{cluster.webhdfs_uri}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        checkpoint = Checkpoint(files, "/checkpoint")
        deadline = time.monotonic() + 180
        while (checkpoint.committed() or 0) < 2:
            assert query.isActive and time.monotonic() < deadline
            time.sleep(0.05)
        cluster.coordinator.kill()
        assert query.isActive, "the kill came too late"
        cluster.restart(cluster.coordinator)
        assert query.awaitTermination(60)
        assert checkpoint.committed() == PARTS - 1
    counts = {row.value: row["count"] for row in spark.table("counts").collect()}
    assert sum(counts.values()) == PARTS * ROWS
    assert len(counts) == 7
