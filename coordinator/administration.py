"""What an operator decides about datanodes: committed first, then acted upon."""

from __future__ import annotations

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import NodeId

from .membership import Node
from .records import Mode
from .workplace import Workplace


class Administration:
    """Takes datanodes out of service and back into it. What was decided stands until it is decided anew."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace

    def recall(self) -> None:
        """At a start: what was decided before."""
        for node, mode in self._at.reader.datanode_modes().items():
            self._at.cluster.set_mode(node, mode)

    async def set_mode(self, node_id: NodeId, mode: Mode) -> Node:
        """Durable when this returns; that it was so before is fine. Raises BadRequest for an unknown datanode."""
        node = self._at.cluster.members.get(node_id)
        if node is None:
            raise BadRequest(f"no datanode {node_id} has registered since the coordinator's start")
        await self._at.commit(lambda tx: tx.set_datanode_mode(node_id, mode))
        self._at.cluster.set_mode(node_id, mode)
        return node
