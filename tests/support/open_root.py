"""A root in which every user of a test may begin, as an administrator may have it; a new one is for superusers."""

from __future__ import annotations

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.metadata.store import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

_OPEN = 0o1777


def open_root(tx: Transaction) -> None:
    namespace.set_permission(tx, parse_path("/"), _OPEN)


def open_homes(tx: Transaction) -> None:
    """Let every user make a home."""
    namespace.mkdirs(tx, parse_path("/user"), "hdfs", _OPEN, 0)


def open_root_of(cluster: LocalCluster) -> None:
    with PeaceFileSystem(f"unix:{cluster.directory}") as administrator:
        administrator.set_permission("/", _OPEN)
