"""The coordinator's ends of its connections from simulated datanodes, and the messages that leave over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from simulation.drop_watch import DropWatch
from simulation.durable_log import DurableLog
from simulation.terms import CALL_TIMEOUT_S, GRANT_CLIENT
from simulation.world import World

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.errors import PeacefsError, PeerUnreachable
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import PROTOCOL_VERSION, Failure, Granted, GrantRefused, Message, ReportAgain
from peacefs.runtime import effects as fx


class Obeying(Protocol):
    """A simulated node that obeys the coordinator."""

    def order(self, order: Message, answered: Callable[[Message], None]) -> None: ...


class SimulatedLink:
    """A connection, as the service's `NodeLink`. `key` identifies it, and replaces the handshake's key."""

    def __init__(self, world: World, name: NodeId, key: str, role: str, peer: Obeying) -> None:
        self.name = name
        self.role = role
        self.transcript = key.encode()
        self.version = PROTOCOL_VERSION
        self.peer_name = f"{name}.simulated"
        self._world = world
        self._peer = peer
        self._heard_s = world.now_s
        self._tags = itertools.count(1)
        self._replies: dict[int, Message] = {}
        #: Fired by the reply to a call.
        self._awaited: dict[int, fx.Ticket] = {}
        self._last_word: Message | None = None

    # -- calls of the coordinator --------------------------------------------------------------------

    def write(self, message: Message, tag: int = 0) -> None:
        if self.is_closing():
            return
        if tag:
            self._replies[tag] = message
            if (ticket := self._awaited.pop(tag, None)) is not None:
                ticket.fire()
        elif isinstance(message, ReportAgain):
            # The datanode hangs up when this arrives, and registers again.
            self._end(message)
        else:
            self._peer.order(message, lambda _reply: None)

    def ask(self, message: Message, answered: Callable[[Message], None]) -> None:
        if self.is_closing():
            answered(Failure("PeerUnreachable", f"the connection to {self.name} broke"))
        else:
            self._peer.order(message, answered)

    def is_closing(self) -> bool:
        return self._last_word is not None

    def refuse(self, error: PeacefsError) -> None:
        self._end(Failure(error.code, error.message, error.culprit))

    def close(self) -> None:
        self._end(Failure(PeerUnreachable.__name__, "the coordinator closed the connection"))

    def abort(self) -> None:
        self.close()

    def silence_s(self) -> float:
        return self._world.now_s - self._heard_s

    def heard(self) -> None:
        self._heard_s = self._world.now_s

    def _end(self, last_word: Message) -> None:
        self._last_word = self._last_word or last_word
        waiting, self._awaited = self._awaited, {}
        for ticket in waiting.values():
            ticket.fire()

    # -- calls of the datanode -----------------------------------------------------------------------

    async def carry(self, take_in: Callable[[SimulatedLink, Message, int], None], message: Message) -> Message:
        """Return the reply to a message, or the final error of a closed link."""
        tag = next(self._tags)
        if not self.is_closing():
            self.heard()
            try:
                take_in(self, message, tag)
            except PeacefsError as error:
                self.refuse(error)
        if tag not in self._replies and not self.is_closing():
            ticket = self._awaited[tag] = fx.Ticket()
            await wait(ticket, CALL_TIMEOUT_S)
        if self._last_word is not None:
            return self._last_word
        return self._replies.pop(tag, Failure("PeerTimeout", "no answer came"))


class _Wait:
    """An awaitable that waits for a ticket."""

    def __init__(self, ticket: fx.Ticket, patience_s: float) -> None:
        self._ticket = ticket
        self._patience_s = patience_s

    def __await__(self) -> fx.Steps[None]:
        yield fx.Wait(self._ticket, self._patience_s)


async def wait(ticket: fx.Ticket, patience_s: float) -> None:
    """Wait until the ticket is fired, at most `patience_s`."""
    await _Wait(ticket, patience_s)


class SimulatedLinks(DatanodeLinks):
    """The real links, except that outgoing orders are checked first and grants are pushed to simulated writers."""

    def __init__(self, world: World, drops: DropWatch, cluster: Callable[[], Cluster], log: DurableLog) -> None:
        super().__init__()
        self._log = log
        self._world = world
        self._drops = drops
        self._cluster = cluster

    def send(self, node: NodeId, message: Message) -> None:
        if isinstance(message, Granted | GrantRefused):
            self._push(message)
            return
        self._drops.look(self._cluster(), [Order(node, message)], self._log)
        super().send(node, message)

    def _push(self, message: Granted | GrantRefused) -> None:
        """Push a grant to a client. It may be lost or duplicated."""
        for _ in range(self._world.random.choice((1, 1, 1, 2))):
            if not self._world.loses():
                self._world.later(self._world.transit_s(), lambda: GRANT_CLIENT.deliver(message))
