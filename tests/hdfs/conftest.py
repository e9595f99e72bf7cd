"""Fixtures of the tests of HDFS's own protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.transfer_cluster import TransferCluster

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture
def transfers(shared_cluster: LocalCluster, files: PeaceFileSystem, home: str) -> TransferCluster:
    return TransferCluster(shared_cluster, files, home)


@pytest.fixture(scope="session")
def stock_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One JVM for all tests of Hadoop's own client."""
    from support.stock_hadoop import running_gateway

    with running_gateway(tmp_path_factory.mktemp("java")) as gateway:
        yield gateway
