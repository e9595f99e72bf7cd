"""A cluster of the previous release is upgraded to this tree, service by service: no client's request fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failover_cluster import failover_cluster
from support.releases import previous_release
from support.rolling_upgrade import agent, client, upgrade_everything

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster


def test_upgrade_of_every_service_fails_no_request(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    cache = getattr(request.config, "cache", None)  # None with `-p no:cacheprovider`
    old = previous_release(cache.mkdir("releases") if cache else tmp_path)
    with failover_cluster(tmp_path, program=old) as cluster, agent(cluster, old) as runner:
        with client(cluster) as user, PeaceFileSystem("http://" + ",".join(cluster.http), "ann") as files:
            made: list[str] = []

            def check() -> None:
                """Check that everything written before this step exists."""
                assert sorted(each.name for each in files.list("/written")) == sorted(made)
                files.write(f"/written/{len(made)}", b"all replicas are well")
                made.append(str(len(made)))

            files.mkdirs("/written")
            upgrade_everything(cluster, runner, user, check)
            assert {files.read(f"/written/{name}") for name in made} == {b"all replicas are well"}
        for service in (*cluster.coordinators, *cluster.datanodes, runner):
            assert service.exit_status() is None
