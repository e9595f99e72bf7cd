"""An operator's decisions about datanodes: commit them first, then act on them."""

from __future__ import annotations

from math import inf

from peacefs.coordinator.cluster.membership import Node
from peacefs.coordinator.metadata.model import AdminDecision, Mode
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import NodeId

from .context import OperationContext


class DatanodeAdmin:
    """Takes datanodes out of service and back. A decision holds until the next one."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    def recall(self) -> None:
        """Load the decisions, at a start and after another coordinator has led."""
        decisions = self._ctx.reader.decisions()
        for node in self._ctx.cluster.members.out_of_service():
            if node not in decisions:
                self._ctx.cluster.set_mode(node, Mode.IN_SERVICE)
        for node, decision in decisions.items():
            if decision.until_ms is None or decision.until_ms > self._ctx.now_ms():
                self._act(node, decision)

    async def decide(self, node_id: NodeId, mode: Mode, for_s: float | None = None) -> Node:
        """Make a decision, durable on return. Repeating it changes nothing. Raises BadRequest for an unknown
        datanode.
        """
        node = self._ctx.cluster.members.get(node_id)
        if node is None:
            raise BadRequest(f"no datanode {node_id} has registered since the coordinator's start")
        decision = AdminDecision(mode, None if for_s is None else self._ctx.now_ms() + int(for_s * 1000))
        await self._ctx.commit(lambda tx: tx.decide(node_id, decision))
        self._act(node_id, decision)
        return node

    def _act(self, node_id: NodeId, decision: AdminDecision) -> None:
        ends_s = inf
        if decision.until_ms is not None:
            ends_s = self._ctx.monotonic() + (decision.until_ms - self._ctx.now_ms()) / 1000
        self._ctx.cluster.set_mode(node_id, decision.mode, ends_s)
