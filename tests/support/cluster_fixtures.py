"""One real cluster per worker, for tests that leave it as they found it: a plugin of `conftest.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("shared-cluster"), datanodes=3, port=0) as cluster:
        yield cluster


@pytest.fixture
def files(shared_cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(shared_cluster.http_address, user="alice") as opened:
        yield opened


@pytest.fixture
def home(files: PeaceFileSystem) -> str:
    """Return a directory of the shared cluster for one test."""
    path = f"/tests/{os.urandom(4).hex()}"
    files.mkdirs(path)
    return path
