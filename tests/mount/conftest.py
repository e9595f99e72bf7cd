"""One mount of the shared cluster for all tests of a worker, and a directory in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mounted_tree import mounted, require_fuse

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="session")
def mount_point(shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    require_fuse()
    with mounted(shared_cluster.http_address, tmp_path_factory.mktemp("mount") / "peace") as mount:
        yield mount.directory


@pytest.fixture
def here(mount_point: Path, home: str) -> Path:
    """Return the test's own directory, `home`, in the mount."""
    return mount_point / home.lstrip("/")


@pytest.fixture
def superuser(shared_cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    """Yield a client of the account that runs the coordinator."""
    with PeaceFileSystem(shared_cluster.http_address) as opened:
        yield opened
