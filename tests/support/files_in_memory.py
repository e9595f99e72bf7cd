"""What a port for datanodes stands before: the operations on files of a coordinator that has none yet."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from support.spoken_link import SIGNER

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.metadata.group_commit import ImmediateCommit
from peacefs.coordinator.metadata.sqlite.store import SqliteMetadata
from peacefs.coordinator.metadata.store import Transaction
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.protocol.ids import Numbering

T = TypeVar("T")


def files_in_memory(cluster: Cluster) -> Files:
    """Over a namespace in memory; orders for datanodes go nowhere."""
    metadata = SqliteMetadata.in_memory()
    commits = ImmediateCommit(metadata, _fatal)
    numbering = Numbering(metadata.begin_epoch())

    async def commit(change: Callable[[Transaction], T]) -> T:
        return commits.submit(change).result()

    context = OperationContext(metadata.reader(), commit, cluster, SIGNER, numbering, lambda _orders: None)
    return Files(context, Scheduling(numbering, Random(1)))


def _fatal(fault: Exception) -> None:
    raise AssertionError(f"SQLite in memory failed: {fault}")
