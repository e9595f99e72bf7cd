"""A cluster that authenticates callers, and its administrator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=["--authentication=token"]) as cluster:
        yield cluster


@pytest.fixture
def administration(cluster: LocalCluster) -> Iterator[TokenAdministration]:
    with TokenAdministration(f"unix:{cluster.directory}") as administration:
        yield administration
