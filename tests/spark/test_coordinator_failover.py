"""A Spark query whose coordinator dies continues at the next leader, with exact results."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.failover_cluster import failover_cluster
from support.failover_session import session_of
from support.long_runs import often
from support.waiting import wait_until

from peacefs.client.control.addresses import NAMESERVICE
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.spark_connector.checkpoints.batches import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
KILLS = often(1, 3)
PARTS = often(10, 60)
ROWS = 100
_KILLED_AFTER = 3


@pytest.mark.evidence("leader-dies")
def test_query_goes_on_exactly_when_its_coordinator_fails_over(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in range(PARTS):
        (source / f"{part}.txt").write_text("".join(f"{row % 7}\n" for row in range(ROWS)))
        os.utime(source / f"{part}.txt", (part + 1, part + 1))
    (tmp_path / "cluster").mkdir()
    with (
        failover_cluster(tmp_path / "cluster") as cluster,
        PeaceFileSystem("http://" + ",".join(cluster.http)) as files,
        session_of(spark, cluster) as session,
    ):
        lines = session.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        query = (
            lines.groupBy("value")
            .count()
            .writeStream.format("memory")
            .queryName("counts_over_a_failover")
            .outputMode("complete")
            .option("checkpointLocation", f"webhdfs://{NAMESERVICE}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        checkpoint = Checkpoint(files, "/checkpoint")
        deadline = time.monotonic() + 180
        for kill in range(KILLS):
            leader = kill % 2
            seen = checkpoint.committed() or 0
            while (checkpoint.committed() or 0) < seen + _KILLED_AFTER:
                assert query.isActive and time.monotonic() < deadline, query.exception()
                time.sleep(0.05)
            cluster.coordinators[leader].kill()
            assert query.isActive, "the kill came too late"
            if kill + 1 < KILLS:
                cluster.coordinators[leader].start()
                wait_until(partial(cluster.stands_by, leader), "the one that was killed stands by")
                wait_until(lambda: all(cluster.datanodes_at(at) == 3 for at in (0, 1)), "datanodes are everywhere")
        assert query.awaitTermination(180), "it goes on, or has failed by now"
        assert query.exception() is None
        assert cluster.leads(KILLS % 2)
        assert checkpoint.committed() == PARTS - 1
        batches = [round(each["durationMs"]["triggerExecution"] / 1000, 2) for each in query.recentProgress]
        print(f"batches of {batches} s")
        counts = {row.value: row["count"] for row in session.table("counts_over_a_failover").collect()}
    assert counts == {str(value): PARTS * len(range(value, ROWS, 7)) for value in range(7)}
