"""The nodes of a query: how many, who starts them, and the limits of their memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from peacefs.dataflow.core.bounds import Bounds
from peacefs.runtime.tls import TlsFiles

from .checkpoint_store import UnitCheckpoints
from .node_process import NodeOrders
from .ring_node import RingOrders


class NodeLauncher(Protocol):
    """Starts nodes, of units or of a ring."""

    def run_node(self, orders: NodeOrders | RingOrders) -> None:
        """Start a node, and return when it has ended. Called on one thread per node."""
        ...

    def at_work(self) -> Collection[str]:
        """Return the nodes whose processes are known to be working: they may be slow, but are not dead."""
        ...

    def close(self) -> None:
        """End all nodes, so that every `run_node` returns."""
        ...


@dataclass(frozen=True)
class NodePool:
    """Nodes for one query, named "node-1" and so on."""

    count: int
    launcher: NodeLauncher
    #: The store to which nodes write the checkpoints of units.
    checkpoints: UnitCheckpoints
    bounds: Bounds
    #: Silence after which a node is considered dead.
    node_timeout_s: float
    #: The certificate, key and CA of all processes of the query. Without them connections do not use TLS.
    tls: TlsFiles | None = None
