"""A cluster of the release before is upgraded to this tree, service by service: no request of a client fails.

Where an upgrade under a Spark query has done all of that besides, it counts for this one (`tests/spark`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failover_cluster import failover_cluster
from support.long_runs import often
from support.releases import previous_release
from support.rolling_upgrade import UNDER_A_QUERY, agent, client, upgrade_and_write

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster


def test_upgrade_of_every_service_fails_no_request(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    cache = getattr(request.config, "cache", None)  # None with `-p no:cacheprovider`
    old = previous_release(cache.mkdir("releases") if cache else tmp_path)
    outcome = request.config.stash.get(UNDER_A_QUERY, None)
    if outcome is None or often(0, 1):
        with (
            failover_cluster(tmp_path, program=old) as cluster,
            agent(cluster, old) as runner,
            client(cluster) as user,
            PeaceFileSystem("http://" + ",".join(cluster.http), "ann") as files,
        ):
            outcome = upgrade_and_write(cluster, runner, user, files)
    assert outcome.is_well, outcome
