"""The nodes that a query runs on: how many there are, who starts them, and what they may take."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from peacefs.dataflow.core.bounds import Bounds

from .checkpoint_store import UnitCheckpoints
from .node_process import NodeOrders
from .ring_node import RingOrders


class NodeLauncher(Protocol):
    """Whoever starts nodes, of units or of a ring."""

    def run_node(self, orders: NodeOrders | RingOrders) -> None:
        """Start a node, and return when it has ended. Called by a thread for each node."""
        ...

    def at_work(self) -> Collection[str]:
        """Return the nodes whose processes are known to be at work: they may be slow, and are not dead."""
        ...

    def close(self) -> None:
        """End all nodes, so that every `run_node` returns."""
        ...


@dataclass(frozen=True)
class NodePool:
    """Nodes for one query. They are named "node-1" and so on."""

    count: int
    launcher: NodeLauncher
    #: The store that nodes write the checkpoints of units to.
    checkpoints: UnitCheckpoints
    bounds: Bounds
    #: A node that is silent for so long is dead.
    node_timeout_s: float
