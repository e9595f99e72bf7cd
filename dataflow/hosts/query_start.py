"""Begin a query on nodes that somebody else starts: as units with a controller, or as a ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.interface import Technique
from peacefs.dataflow.techniques.peer_ring import PeerRing

from .checkpoint_store import UnitCheckpoints
from .edge_run import EdgeRun, RunOptions
from .interface import Sink, Source
from .node_process import NodeOrders
from .ring_node import RingOrders
from .ring_run import RingRun


class NodeLauncher(Protocol):
    """Whoever starts nodes of either kind."""

    def run_node(self, orders: NodeOrders | RingOrders) -> None:
        """Start a node, and return when it has ended. Called by a thread for each node."""
        ...

    def close(self) -> None:
        """End all nodes, so that every `run_node` returns."""
        ...


def start_query(
    network: Network,
    technique: Technique,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    *,
    nodes: int,
    launcher: NodeLauncher,
    checkpoints: UnitCheckpoints,
    bounds: Bounds,
    node_timeout_s: float,
    options: RunOptions | None,
) -> EdgeRun | RingRun:
    if isinstance(technique, PeerRing):
        return RingRun(
            network,
            technique,
            sources,
            sinks,
            nodes=nodes,
            launcher=launcher,
            bounds=bounds,
            options=options,
        )
    return EdgeRun(
        network,
        technique,
        sources,
        sinks,
        nodes=nodes,
        launcher=launcher,
        checkpoints=checkpoints,
        bounds=bounds,
        node_timeout_s=node_timeout_s,
        options=options,
    )
