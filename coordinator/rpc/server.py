"""The framed server for datanodes and agents: keeps their connections.

Everything runs on the event loop. A `NodeLink` splits a connection's bytes into messages, and `NodeService` serves
them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from peacefs.protocol.errors import (
    BadRequest,
    Overloaded,
    PeerTimeout,
    from_wire,
)
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import control_call_timeout_s
from peacefs.protocol.messages import (
    Failure,
    Message,
)
from peacefs.runtime.tls import TlsIdentity
from peacefs.service.http_server import listen
from peacefs.service.tls_listener import TlsListener

from .datanode_links import DatanodeLinks
from .datanode_session import NodeLink
from .fair_turns import Turns
from .node_service import NodeService

# Maximum number of connections to the port for datanodes whose handshake is not complete.
handshakes_waiting_max: Final = 512
control_requests_in_flight_max: Final = 4096


log = logging.getLogger("peacefs.coordinator")


class RunningCalls:
    """Requests of datanodes and agents that wait for something."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a request that may wait. Raises Overloaded if too many are under way."""
        if len(self._running) >= control_requests_in_flight_max:
            work.close()
            raise Overloaded(f"{len(self._running)} requests are under way already; try again")
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        for task in list(self._running):
            task.cancel()


class NodeServer:
    """All connections from datanodes and agents."""

    def __init__(
        self,
        me: Identity,
        service: NodeService,
        links: DatanodeLinks,
        calls: RunningCalls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve with `service`, which runs calls that may wait in `calls`."""
        self.me = me
        self.service = service
        self.clock = clock
        self._links = links
        self._calls = calls
        self._open: set[NodeLink] = set()
        #: Those that have not said all of their hello yet, longest first.
        self._strangers: dict[NodeLink, None] = {}
        self._server: asyncio.Server | TlsListener | None = None
        #: Links that have more to do than fitted into their turn.
        self.turns = Turns()

    async def start(self, host: str, port: int, advertised: str = "", tls: TlsIdentity | None = None) -> int:
        """Listen, and return the port. Datanodes may use `advertised`, too. Raises OSError, StartupError."""
        if tls is None:
            loop = asyncio.get_running_loop()
            plain = await loop.create_server(lambda: NodeLink(self), host, port, backlog=handshakes_waiting_max)
            self._server, bound = plain, int(plain.sockets[0].getsockname()[1])
        else:
            listener = listen(host, port)
            self._server = secured = TlsListener(
                listener, lambda: NodeLink(self), lambda: tls.server_context(ssl.CERT_REQUIRED)
            )
            secured.start()
            bound = int(listener.getsockname()[1])
        if advertised:
            self.me = dataclasses.replace(self.me, addresses=(f"{advertised}:{bound}",))
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._open):
            link.close()
        self._calls.stop()

    async def ask(self, node: NodeId, message: Message) -> Message:
        """Ask a datanode and return its immediate answer. Raises BadRequest if it is not connected, PeerTimeout,
        its Failure.
        """
        if self._links.get(node) is None:
            raise BadRequest(f"no datanode {node} is connected")
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._links.ask(node, message, lambda reply: None if answered.done() else answered.set_result(reply))
        try:
            reply = await asyncio.wait_for(answered, control_call_timeout_s)
        except TimeoutError:
            raise PeerTimeout(f"datanode {node} did not answer within {control_call_timeout_s:g} s") from None
        if isinstance(reply, Failure):
            raise from_wire(reply.code, reply.message, reply.culprit)
        return reply

    # -- called by links ---------------------------------------------------------------------------

    def opened(self, link: NodeLink) -> None:
        """Register a new connection; over the limit, close the one that has been silent longest, so that nobody is
        kept out.
        """
        self._open.add(link)
        self._strangers[link] = None
        if len(self._strangers) > handshakes_waiting_max:
            longest = next(iter(self._strangers))
            del self._strangers[longest]
            longest.abort()

    def greeted(self, link: NodeLink) -> None:
        self._strangers.pop(link, None)

    def received(self, link: NodeLink, message: Message, tag: int) -> None:
        self.service.received(link, message, tag)

    def closed(self, link: NodeLink) -> None:
        self._open.discard(link)
        self._strangers.pop(link, None)
        self.service.closed(link)
