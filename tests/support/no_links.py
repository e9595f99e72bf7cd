"""The links of a coordinator to which no datanode is connected."""

from __future__ import annotations

from collections.abc import Callable

from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Failure, Message


class NoLinks:
    """Messages are lost, and questions answered with a failure."""

    def send(self, node: NodeId, message: Message) -> None:
        """Lose it."""

    def ask(self, node: NodeId, message: Message, answered: Callable[[Message], None]) -> None:
        answered(Failure("PeerUnreachable", f"{node} is not connected"))
