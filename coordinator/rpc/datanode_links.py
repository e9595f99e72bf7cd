"""The connections of datanodes, by datanode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec.structs import replace

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import ORDERS, Failure, Message

#: Runs a request that may wait. Raises Overloaded.
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class DatanodeLink(Protocol):
    """A connection after its handshake: a socket's, or a simulated one."""

    @property
    def name(self) -> NodeId:
        """The id that the peer has shown."""

    @property
    def role(self) -> str:
        """The peer's role: "datanode" or "agent"."""

    @property
    def transcript(self) -> bytes:
        """The transcript of the handshake, which a registration signs."""

    @property
    def version(self) -> int:
        """The protocol version that both sides speak."""

    @property
    def peer_name(self) -> str:
        """The address of the peer, for people."""

    def write(self, message: Message, tag: int = 0) -> None:
        """Send a message, or the reply to the message with this tag. It is lost if the connection is closing."""

    def ask(self, message: Message, answered: Callable[[Message], None]) -> None:
        """Send a message. `answered` gets the reply, or a Failure if the connection breaks first."""

    def is_closing(self) -> bool:
        """Return whether the connection can send nothing any more."""

    def refuse(self, error: PeacefsError) -> None:
        """Tell the peer why, and close."""

    def close(self) -> None:
        """Close the connection when everything is sent."""

    def abort(self) -> None:
        """Break the connection at once."""

    def silence_s(self) -> float:
        """Return how many seconds ago anything arrived."""

    def heard(self) -> None:
        """Count the peer as heard now. It was silent because it waited for an answer."""


def reply_late(link: DatanodeLink, reply: Message, tag: int) -> None:
    """Reply after a wait. The connection and the loop may have been closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        link.write(reply, tag)


class DatanodeLinks:
    """The link of each datanode: the one that registered last. Used from one event loop only."""

    def __init__(self) -> None:
        self._links: dict[NodeId, DatanodeLink] = {}
        #: The epoch of orders; None while another coordinator leads, and no orders are given.
        self._epoch: Callable[[], int] | None = lambda: 0

    def stand_by(self) -> None:
        """Send no orders until `lead`: messages are lost, and questions fail."""
        self._epoch = None

    def lead(self, epoch: Callable[[], int]) -> None:
        """Send orders with this epoch from now on."""
        self._epoch = epoch

    def _stamped(self, message: Message) -> Message:
        assert self._epoch is not None
        return replace(message, epoch=self._epoch()) if isinstance(message, ORDERS) else message

    def get(self, node: NodeId) -> DatanodeLink | None:
        """Return the link of a connected datanode, or None."""
        return self._links.get(node)

    def speaks_for_datanode(self, link: DatanodeLink) -> bool:
        """Return whether this link registered last for its datanode."""
        return self._links.get(link.name) is link

    def registered(self, link: DatanodeLink) -> None:
        """Make this the link of its datanode. Messages of an earlier link are outdated."""
        before = self._links.get(link.name)
        self._links[link.name] = link
        if before is not None and before is not link:
            before.abort()

    def closed(self, link: DatanodeLink) -> None:
        """Forget a connection that has ended."""
        if self.speaks_for_datanode(link):
            del self._links[link.name]

    def send(self, node: NodeId, message: Message) -> None:
        """Send a message. It is lost if the datanode is away: its next report settles the difference."""
        link = self._links.get(node)
        if link is not None and self._epoch is not None:
            link.write(self._stamped(message))

    def ask(self, node: NodeId, message: Message, answered: Callable[[Message], None]) -> None:
        """Send a message. Call `answered` once, with the reply or a Failure."""
        link = self._links.get(node)
        if link is None:
            answered(Failure("PeerUnreachable", f"{node} is not connected"))
        elif self._epoch is None:
            answered(Failure("Standby", "another coordinator leads"))
        else:
            link.ask(self._stamped(message), answered)

    def hang_up(self, node: NodeId) -> None:
        """Close the connection of a datanode. It may connect again if it is allowed to."""
        link = self._links.get(node)
        if link is not None:
            link.close()
