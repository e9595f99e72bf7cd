"""Messages that the coordinator's core wants sent to datanodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import DeleteChunks, Message, Replica

deletes_per_command: Final = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """A message to be sent to a datanode."""

    node: NodeId
    message: Message


def delete_orders(doomed: Mapping[NodeId, Sequence[Replica]]) -> list[Order]:
    """Return orders to delete replicas, with up to `deletes_per_command` replicas each."""
    return [
        Order(node, DeleteChunks(list(replicas[at : at + deletes_per_command])))
        for node, replicas in sorted(doomed.items())
        for at in range(0, len(replicas), deletes_per_command)
    ]
