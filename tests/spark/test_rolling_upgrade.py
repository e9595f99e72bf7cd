"""Every service is upgraded to the next release, one after the other, during a Spark query: no request fails.

Coordinators, datanodes and an agent start with the previous release if its commit is available, else with this
one; then it is a rolling restart.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.failover_cluster import failover_cluster
from support.failover_session import session_of
from support.growing_source import GrowingSource
from support.releases import NEW, previous_release
from support.rolling_upgrade import agent, client, upgrade_everything
from support.waiting import wait_until

from peacefs.client.control.addresses import NAMESERVICE
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.spark_connector.checkpoints.batches import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.long("two minutes")]


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Return the command of the previous release, or of this tree if that commit is not available."""
    cache = getattr(request.config, "cache", None)
    try:
        return previous_release(cache.mkdir("releases") if cache else tmp_path)
    except pytest.skip.Exception as missing:
        print(f"a rolling restart, no upgrade: {missing}")
        return NEW


def test_upgrade_of_every_service_fails_no_request_of_a_query(
    spark: SparkSession, tmp_path: Path, old: tuple[str, ...]
) -> None:
    (tmp_path / "cluster").mkdir()
    source = GrowingSource(tmp_path / "source")
    with (
        failover_cluster(tmp_path / "cluster", program=old) as cluster,
        agent(cluster, old) as runner,
        session_of(spark, cluster) as session,
    ):
        source.add()
        query = (
            session.readStream.option("maxFilesPerTrigger", 1)
            .text(f"file://{source.directory}")
            .groupBy("value")
            .count()
            .writeStream.format("memory")
            .queryName("counts_over_an_upgrade")
            .outputMode("complete")
            .option("checkpointLocation", f"webhdfs://{NAMESERVICE}/checkpoint")
            .start()
        )
        try:
            with PeaceFileSystem("http://" + ",".join(cluster.http)) as files, client(cluster) as user:
                checkpoint = Checkpoint(files, "/checkpoint")

                def is_committed(batch: int) -> bool:
                    done = checkpoint.committed()
                    return query.exception() is not None or (done is not None and done >= batch)

                def batches_go_on() -> None:
                    """Wait for a batch that began after this call."""
                    source.add()
                    wait_until(lambda: is_committed(source.files - 1), f"batch {source.files - 1} is committed")
                    assert query.exception() is None

                upgrade_everything(cluster, runner, user, batches_go_on)
        finally:
            query.stop()
        took = [
            each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]
        ]
        print(f"{len(took)} batches, the longest {max(took):.2f} s, the median {statistics.median(took):.2f} s")
        counts = {row.value: row["count"] for row in session.table("counts_over_an_upgrade").collect()}
    assert counts == source.counts()
