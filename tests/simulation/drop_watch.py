"""Checks when the simulated coordinator may tell a datanode to drop a replica."""

from __future__ import annotations

from collections.abc import Container, Sequence

from simulation.durable_log import DurableLog

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import State
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import DeleteChunks


class DropWatch:
    """Checks that the coordinator drops a good replica only if enough other live datanodes hold the chunk.

    Lying datanodes do not count as holders, and the replicas that they claim may be dropped.
    """

    def __init__(self, liars: Container[NodeId]) -> None:
        self._liars = liars
        #: The replicas that any datanode has reported as corrupt.
        self.corrupt: set[tuple[NodeId, ChunkId]] = set()

    def look(self, cluster: Cluster, orders: Sequence[Order], log: DurableLog) -> None:
        """Check orders before they are sent."""
        for order in orders:
            if not isinstance(order.message, DeleteChunks):
                continue
            for replica in order.message.replicas:
                state = cluster.chunks.get(replica.chunk)
                if state is None:
                    is_needed = log.refers_to(replica.chunk, replica.version)
                    assert not is_needed, f"{order.node} drops {replica}, and the durable metadata has it"
                of_now = state is not None and (replica.version, replica.length) == (state.version, state.length)
                if state is None or not of_now or (order.node, replica.chunk) in self.corrupt:
                    continue
                if order.node in self._liars:
                    continue
                members = [cluster.members.get(node) for node in cluster.chunks.staying(state)]
                alive = [node.id for node in members if node is not None and node.state is State.ALIVE]
                heard = [node for node in alive if node not in self._liars]
                assert len(set(heard) - {order.node}) >= state.replication, (
                    f"{order.node} drops {replica}: {state}"
                )
