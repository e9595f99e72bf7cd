"""A cluster of real services to attack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("hostile")
    options = [f"--audit-log={directory / 'audit.log'}"]
    with LocalCluster(directory / "cluster", datanodes=2, port=0, coordinator_options=options) as cluster:
        yield cluster
