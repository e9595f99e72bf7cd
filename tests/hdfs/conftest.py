"""Fixtures of the tests of HDFS's data transfer protocol."""

from __future__ import annotations

import pytest
from support.transfer_cluster import TransferCluster

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture
def transfers(shared_cluster: LocalCluster, files: PeaceFileSystem, home: str) -> TransferCluster:
    return TransferCluster(shared_cluster, files, home)
