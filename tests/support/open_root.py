"""Let every user of a test write to the root directory, where by default only superusers may.

All new local clusters of tests have such a root, because few tests are about it. Tests about the default root use
`root_as_made`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.shared_directories import make_shared_directories
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

_OPEN = 0o1777
_begin = LocalCluster.begin


def open_root(tx: Transaction) -> None:
    namespace.set_permission(tx, parse_path("/"), _OPEN)


def open_homes(tx: Transaction) -> None:
    """Let every user make a home."""
    namespace.mkdirs(tx, parse_path("/user"), "hdfs", _OPEN, 0)


def open_root_of(coordinator: Path) -> None:
    """Open the root of the coordinator of this directory, or of a local cluster."""
    with PeaceFileSystem(f"unix:{coordinator}") as administrator:
        administrator.set_permission("/", _OPEN)


def make_homes_of(coordinator: Path, *users: str) -> None:
    with PeaceFileSystem(f"unix:{coordinator}") as administrator:
        list(make_shared_directories(administrator, users))


def _begin_open(cluster: LocalCluster) -> None:
    is_new = not (cluster._path / "cluster.json").exists()
    _begin(cluster)
    if is_new:
        open_root_of(cluster.directory)


@contextmanager
def root_as_made() -> Iterator[None]:
    """Start local clusters with the root of a new cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalCluster, "begin", _begin)
        yield


LocalCluster.begin = _begin_open  # type: ignore[method-assign, assignment]
