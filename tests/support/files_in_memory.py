"""The datanodes' file operations of a coordinator, without datanodes."""

from __future__ import annotations

from collections.abc import Callable

from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.spoken_link import SIGNER

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.core_driver import DatanodeSender


def context_in_memory(
    core: CoordinatorCore, links: DatanodeSender, clock: Callable[[], float]
) -> OperationContext:
    """Return operations on a namespace in memory."""
    metadata = store_in_memory()
    metadata.begin_epoch()
    return OperationContext(
        metadata.reader(), CommitsAtOnce(metadata), core, SIGNER, links, durable_at_once(metadata), monotonic=clock
    )
