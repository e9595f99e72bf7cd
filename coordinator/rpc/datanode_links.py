"""The connections of datanodes as the coordinator's parts use them: who is reachable through which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec.structs import replace

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import ORDERS, Failure, Message

#: Runs a request that may wait, or raises Overloaded.
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class DatanodeLink(Protocol):
    """One connection whose peer has shown who it is: a socket's, or a simulated one."""

    @property
    def name(self) -> NodeId:
        """The id under which the peer came."""

    @property
    def role(self) -> str:
        """The part that the peer plays: "datanode" or "agent"."""

    @property
    def transcript(self) -> bytes:
        """The handshake of this connection, for which a registration is proven."""

    @property
    def version(self) -> int:
        """The protocol version that both sides speak."""

    @property
    def peer_name(self) -> str:
        """The address of the peer, for people."""

    def write(self, message: Message, tag: int = 0) -> None:
        """Send a message, or the reply to the one with this tag. It is lost when the connection is closing."""

    def ask(self, message: Message, answered: Callable[[Message], None]) -> None:
        """Send a message; `answered` gets the reply, or a Failure when the connection breaks first."""

    def is_closing(self) -> bool:
        """Return whether nothing can be sent any more."""

    def refuse(self, error: PeacefsError) -> None:
        """Tell the peer why, and close."""

    def close(self) -> None:
        """Close when all is sent."""

    def abort(self) -> None:
        """Break the connection at once."""

    def silence_s(self) -> float:
        """Return how long ago anything came."""

    def heard(self) -> None:
        """The peer counts as heard now: it was silent for want of an answer."""


def reply_late(link: DatanodeLink, reply: Message, tag: int) -> None:
    """Reply after a wait: the connection, and the loop, may have been closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        link.write(reply, tag)


class DatanodeLinks:
    """The link that speaks for each datanode: that which registered last. Used from one event loop only."""

    def __init__(self) -> None:
        self._links: dict[NodeId, DatanodeLink] = {}
        #: The epoch that orders bear; None while another coordinator leads, and nothing is ordered.
        self._epoch: Callable[[], int] | None = lambda: 0

    def stand_by(self) -> None:
        """Order nothing, until `lead`: what is sent is lost, and what is asked fails."""
        self._epoch = None

    def lead(self, epoch: Callable[[], int]) -> None:
        """Have orders bear this epoch from now on."""
        self._epoch = epoch

    def _stamped(self, message: Message) -> Message:
        assert self._epoch is not None
        return replace(message, epoch=self._epoch()) if isinstance(message, ORDERS) else message

    def get(self, node: NodeId) -> DatanodeLink | None:
        """Return the link of a datanode that is connected."""
        return self._links.get(node)

    def speaks_for_datanode(self, link: DatanodeLink) -> bool:
        """Return whether this link registered last under its name."""
        return self._links.get(link.name) is link

    def registered(self, link: DatanodeLink) -> None:
        """Have this link speak for its datanode: what an earlier one may still bring is out of date."""
        before = self._links.get(link.name)
        self._links[link.name] = link
        if before is not None and before is not link:
            before.abort()

    def closed(self, link: DatanodeLink) -> None:
        """A connection has ended."""
        if self.speaks_for_datanode(link):
            del self._links[link.name]

    def send(self, node: NodeId, message: Message) -> None:
        """Send a message. A datanode that is away gets none: its next report settles what it should do."""
        link = self._links.get(node)
        if link is not None and self._epoch is not None:
            link.write(self._stamped(message))

    def ask(self, node: NodeId, message: Message, answered: Callable[[Message], None]) -> None:
        """Send a message, and call `answered` once, with the reply or a Failure."""
        link = self._links.get(node)
        if link is None:
            answered(Failure("PeerUnreachable", f"{node} is not connected"))
        elif self._epoch is None:
            answered(Failure("Standby", "another coordinator leads"))
        else:
            link.ask(self._stamped(message), answered)

    def hang_up(self, node: NodeId) -> None:
        """End the session of a datanode; it may come again if it is let in."""
        link = self._links.get(node)
        if link is not None:
            link.close()
