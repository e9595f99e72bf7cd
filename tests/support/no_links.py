"""The links of a coordinator to which no datanode is connected."""

from __future__ import annotations

from collections.abc import Callable

from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Failure, Message


class NoLinks:
    """Links that lose every message and answer questions with a failure."""

    def send(self, node: NodeId, message: Message) -> None:
        """Lose the message."""

    def ask(self, node: NodeId, message: Message, answered: Callable[[Message], None]) -> None:
        answered(Failure("PeerUnreachable", f"{node} is not connected"))
