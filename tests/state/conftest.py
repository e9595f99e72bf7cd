"""A real cluster for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("state-cluster"), datanodes=3, port=0) as cluster:
        yield cluster


@pytest.fixture
def files(shared_cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(shared_cluster.http_address, user="alice") as opened:
        yield opened
