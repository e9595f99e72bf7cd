"""The coordinator's ends of its connections from simulated datanodes, and what leaves through them."""

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
    """A simulated service that obeys the coordinator."""

    def order(self, order: Message, answered: Callable[[Message], None]) -> None: ...


class SimulatedLink:
    """One connection, as the service's `NodeLink` is. `key` names it, and stands for its handshake."""

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
        #: Fired by the reply to a call that waits for it.
        self._awaited: dict[int, fx.Ticket] = {}
        self._last_word: Message | None = None

    # -- what the coordinator does with it -----------------------------------------------------------

    def write(self, message: Message, tag: int = 0) -> None:
        if self.is_closing():
            return
        if tag:
            self._replies[tag] = message
            if (ticket := self._awaited.pop(tag, None)) is not None:
                ticket.fire()
        elif isinstance(message, ReportAgain):
            # The datanode hangs up when that comes, and registers anew.
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

    # -- what its datanode does with it --------------------------------------------------------------

    async def carry(self, take_in: Callable[[SimulatedLink, Message, int], None], message: Message) -> Message:
        """Return the reply to a message, or the last word of a link that is closed."""
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
    """Awaited by a coroutine until a ticket is fired."""

    def __init__(self, ticket: fx.Ticket, patience_s: float) -> None:
        self._ticket = ticket
        self._patience_s = patience_s

    def __await__(self) -> fx.Steps[None]:
        yield fx.Wait(self._ticket, self._patience_s)


async def wait(ticket: fx.Ticket, patience_s: float) -> None:
    """Wait until the ticket is fired, or the patience is over."""
    await _Wait(ticket, patience_s)


class SimulatedLinks(DatanodeLinks):
    """The real ones; what leaves is looked at, and grants find their writers, who are no datanodes here."""

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
        """To a client; it may be lost, or come twice."""
        for _ in range(self._world.random.choice((1, 1, 1, 2))):
            if not self._world.loses():
                self._world.later(self._world.transit_s(), lambda: GRANT_CLIENT.deliver(message))
