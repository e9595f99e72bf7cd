"""The framed server that datanodes and agents hold a connection to: who is connected, and who is reachable how.

Everything runs on the event loop. What a connection brings is worked on by its `NodeLink`; orders for datanodes,
and copies whose answers go back to the core, leave from here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.possession import Question
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.supervision.service import SupervisionService
from peacefs.protocol.errors import (
    BadRequest,
    NodeIdTaken,
    Overloaded,
    PeerTimeout,
    from_wire,
)
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import NodeId, show
from peacefs.protocol.limits import (
    control_call_timeout_s,
    control_requests_in_flight_max,
    handshakes_waiting_max,
    suspect_after_s,
)
from peacefs.protocol.messages import (
    Done,
    Failure,
    Message,
    Register,
    ReplicateChunk,
    Trust,
)
from peacefs.protocol.service.http_server import listen
from peacefs.protocol.service.tls import TlsIdentity
from peacefs.protocol.service.tls_listener import TlsListener

from .audited_calls import AuditedRpc
from .datanode_session import NodeLink
from .fair_turns import Turns

log = logging.getLogger("peacefs.coordinator")


class NodeServer:
    """All connections from datanodes, and who is reachable through which."""

    def __init__(
        self,
        me: Identity,
        cluster: Cluster,
        epoch: Callable[[], int],
        on_epoch_seen: Callable[[NodeId, int, int], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        audited: AuditedRpc | None = None,
        commit: Callable[[], int] = lambda: 0,
        trust: Callable[[], Trust] = Trust,
    ) -> None:
        """`on_epoch_seen` is told which epoch and commit a datanode has seen; `commit` gives the last durable.

        `trust` gives what gateways verify their callers with: the same object until it changes.
        """
        self.me = me
        self.cluster = cluster
        self.clock = clock
        self.wall_clock = wall_clock
        self.audited = audited
        self.epoch = epoch
        self.trust = trust
        self.on_epoch_seen = on_epoch_seen
        self.commit = commit
        #: Set by the service, which builds Files with this server's `send`.
        self.files: Files
        #: Set by the service, too.
        self.supervising: SupervisionService
        self._links: dict[NodeId, NodeLink] = {}
        self._open: set[NodeLink] = set()
        #: Those that have not said all of their hello yet, longest first.
        self._strangers: dict[NodeLink, None] = {}
        #: Links on which datanodes wait to be registered, with what they said.
        self._to_register: dict[NodeLink, tuple[Register, int]] = {}
        self._server: asyncio.Server | TlsListener | None = None
        self._running: set[asyncio.Task[None]] = set()
        #: Links that have more to do than fitted into their turn.
        self.turns = Turns()

    async def start(self, host: str, port: int, advertised: str = "", tls: TlsIdentity | None = None) -> int:
        """Listens; gives the port. Datanodes may reach it by `advertised`, too. Raises OSError, StartupError.

        With `tls` only services that show a certificate get further than that.
        """
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
        for task in list(self._running):
            task.cancel()

    def send(self, orders: Sequence[Order]) -> None:
        """Orders for datanodes. One that is away gets none: its next report settles what it should do."""
        for order in orders:
            link = self._links.get(order.node)
            if link is not None:
                link.write(order.message)

    def start_copy(self, copy: ReplicaCopy) -> None:
        """Tells a source to copy a chunk; its answer goes back to the core."""
        target = self.cluster.hop(copy.target)
        link = self._links.get(copy.source)
        if link is None or target is None:
            self.cluster.answered(copy, copied=False)
            return
        log.info("copying chunk %s from %s to %s", show(copy.chunk), copy.source, copy.target)
        self.files.schedule.copy_begins(copy.chunk, copy.source, copy.target)
        token = self.files.writing.write_token(copy.chunk, copy.version, [target])
        link.ask(
            ReplicateChunk(copy.chunk, copy.version, [target], token, copy.bytes_per_second),
            lambda reply: self._copied(copy, reply),
        )

    def ask_for_proof(self, question: Question) -> None:
        """Has a datanode show what it holds; its answer goes back to the core."""
        link = self._links.get(question.node)
        if link is None:
            self.cluster.proven(question, Failure("PeerUnreachable", f"{question.node} is not connected"))
        else:
            link.ask(question.message, lambda reply: self.cluster.proven(question, reply))

    async def ask(self, node: NodeId, message: Message) -> Message:
        """What a datanode answers at once. Raises BadRequest if it is not connected, PeerTimeout, its Failure."""
        link = self._links.get(node)
        if link is None:
            raise BadRequest(f"no datanode {node} is connected")
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        link.ask(message, lambda reply: None if answered.done() else answered.set_result(reply))
        try:
            reply = await asyncio.wait_for(answered, control_call_timeout_s)
        except TimeoutError:
            raise PeerTimeout(f"datanode {node} did not answer within {control_call_timeout_s:g} s") from None
        if isinstance(reply, Failure):
            raise from_wire(reply.code, reply.message, reply.culprit)
        return reply

    def hang_up(self, node: NodeId) -> None:
        """Ends the session of a datanode; it may come again if it is let in."""
        link = self._links.get(node)
        if link is not None:
            link.close()

    def _copied(self, copy: ReplicaCopy, reply: Message) -> None:
        copied = isinstance(reply, Done)
        if not copied:
            why = reply.message if isinstance(reply, Failure) else type(reply).__name__
            log.warning(
                "copying chunk %s from %s to %s failed: %s", show(copy.chunk), copy.source, copy.target, why
            )
        self.files.schedule.copy_ended(copy.chunk)
        self.cluster.answered(copy, copied=copied)

    # -- called by links ---------------------------------------------------------------------------

    def opened(self, link: NodeLink) -> None:
        """Who connects and says nothing keeps nobody out: of too many, the longest silent one goes."""
        self._open.add(link)
        self._strangers[link] = None
        if len(self._strangers) > handshakes_waiting_max:
            longest = next(iter(self._strangers))
            del self._strangers[longest]
            longest.abort()

    def greeted(self, link: NodeLink) -> None:
        self._strangers.pop(link, None)

    def closed(self, link: NodeLink) -> None:
        self._open.discard(link)
        self._strangers.pop(link, None)
        self._to_register.pop(link, None)
        if self._links.get(link.name) is link:
            del self._links[link.name]

    def registered(self, link: NodeLink) -> None:
        """From now on this link speaks for its datanode: what an earlier one may still bring is out of date."""
        before = self._links.get(link.name)
        self._links[link.name] = link
        if before is not None and before is not link:
            before.abort()

    def keep_waiting(self, link: NodeLink, message: Register, tag: int) -> None:
        """A datanode comes while the chunks are still being loaded, and brings its report when they all are.

        What it holds would be taken for unreferenced until then: at several times the memory, which stays lost.
        """
        self._to_register[link] = message, tag

    def chunks_loaded(self) -> None:
        """Registers the datanodes that have waited."""
        waiting, self._to_register = self._to_register, {}
        for link, (message, tag) in waiting.items():
            link.register(message, tag)

    def speaks_for_datanode(self, link: NodeLink) -> bool:
        return self._links.get(link.name) is link

    def check_alone(self, registration: Register) -> None:
        """Raises NodeIdTaken when another process with the same id has been heard a moment ago."""
        other = self._links.get(registration.node)
        if other is None or other.process == registration.process or other.silence_s() >= suspect_after_s:
            return
        raise NodeIdTaken(
            f"the datanode at {other.peer_name} has the id {registration.node}, too, and is here: is the "
            "directory a copy of another datanode's? Start each datanode on a directory of its own"
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a request that may wait. Raises Overloaded when too many are under way."""
        if len(self._running) >= control_requests_in_flight_max:
            work.close()
            raise Overloaded(f"{len(self._running)} requests are under way already; try again")
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
