"""One connection from a datanode or an agent: bytes in, events for the core out, and back.

It says hello, then carries both the datanode's requests (answered by tag) and the coordinator's orders (answered
by tag where an answer is wanted). Everything runs on the event loop; what is long is done in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, cast

from peacefs.coordinator.cluster.commands import Order
from peacefs.protocol.errors import (
    Overloaded,
    PeacefsError,
    PeerRefused,
    ProtocolViolation,
)
from peacefs.protocol.frames import Frame, FrameReader, encode, frame_bytes_max
from peacefs.protocol.handshake import Peer, accepting
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import (
    handshake_frame_bytes_max,
    handshake_timeout_s,
    idle_connection_timeout_s,
    link_at_once_bytes,
    link_backlog_bytes_max,
    link_turn_s,
)
from peacefs.protocol.messages import (
    AgentBeat,
    DiskBalance,
    Done,
    Failure,
    Heartbeat,
    HeartbeatAck,
    Message,
    Register,
    Registered,
    ReplicasProven,
    ReportAgain,
    ReportChunks,
    Trust,
)
from peacefs.protocol.seals import Opener, Sealer
from peacefs.protocol.service.metrics import frames_sent
from peacefs.protocol.service.tls_listener import channel_of

from .dispatch import CALLS_OF_DATANODES, answer

if TYPE_CHECKING:
    from .server import NodeServer

log = logging.getLogger("peacefs.coordinator")


#: What orders and questions are answered with.
_ANSWERS = Done | Failure | DiskBalance | ReplicasProven


class NodeLink(asyncio.Protocol):
    """One connection from a datanode."""

    def __init__(self, server: NodeServer) -> None:
        self._server = server
        self._frames = FrameReader(handshake_frame_bytes_max)
        self._transport: asyncio.Transport
        self._handshake: Generator[Message, Message, Peer] | None = None
        self._peer: Peer | None = None
        #: Seals what is sent, once the handshake has given keys.
        self._sealer: Sealer | None = None
        self._asked: dict[int, Callable[[Message], None]] = {}
        self._next_tag = 1
        self._deadline: asyncio.TimerHandle
        self._heard_s = 0.0
        #: Whether more has come than was done in one turn; then nothing more is read.
        self._behind = False
        self.name: NodeId = ""
        #: As it registered.
        self.process = ""
        self._host: str | None = None
        #: What it was told last.
        self._trust: Trust | None = None

    # -- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.opened(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(handshake_timeout_s, self._close_if_no_handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._server.closed(self)
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(Failure("PeerUnreachable", f"the connection to {self.name} broke"))

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.take(data)
        except PeacefsError as error:
            self._refuse(error)
            return
        if self._behind:
            return
        if (self._server.turns.busy and self._frames.buffered_bytes > link_at_once_bytes) or self.work():
            self._behind = True
            self._transport.pause_reading()
            self._server.turns.queue(self)

    def work(self) -> bool:
        """Does what has come, for one turn, so that no long report holds others up. Whether there is more."""
        # Bytes alone are no sign of life: whoever sends them one by one is as good as silent.
        turn_ends_s = self._server.clock() + link_turn_s
        try:
            while not self._transport.is_closing() and (frame := self._frames.next()) is not None:
                self._heard_s = self._server.clock()
                self._received(frame)
                if self._server.clock() >= turn_ends_s:
                    return True
        except PeacefsError as error:
            self._refuse(error)
        if self._behind and not self._transport.is_closing():
            self._behind = False
            self._transport.resume_reading()
        return False

    def _refuse(self, error: PeacefsError) -> None:
        log.warning("connection from %s closed: %s", self.name or "an unknown peer", error.message)
        self.write(Failure(error.code, error.message))
        self.close()

    def write(self, message: Message, tag: int = 0) -> None:
        """Queues a message. A peer that does not read what it is sent is cut off rather than waited for."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > link_backlog_bytes_max:
            log.warning("%s does not read what it is sent; its connection is closed", self.name)
            self._transport.abort()
            return
        frames_sent.inc()
        frame = encode(message, tag=tag)
        self._transport.write(frame if self._sealer is None else b"".join(self._sealer.seal(frame)))

    def ask(self, message: Message, answered: Callable[[Message], None]) -> None:
        """Sends an order; `answered` gets the reply, or a Failure when the connection breaks first."""
        tag = self._next_tag
        self._next_tag += 1
        self._asked[tag] = answered
        self.write(message, tag)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def silence_s(self) -> float:
        """How long ago anything came."""
        return self._server.clock() - self._heard_s

    @property
    def peer_name(self) -> str:
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else "an unknown address"

    def _close_if_no_handshake(self) -> None:
        if self._peer is None:
            self._transport.abort()
            return
        idle_s = self.silence_s()
        if idle_s >= idle_connection_timeout_s:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(idle_connection_timeout_s - idle_s, self._close_if_no_handshake)

    # -- what comes --------------------------------------------------------------------------------

    def _received(self, frame: Frame) -> None:
        if self._peer is None:
            self._continue_handshake(frame.message)
            return
        message = frame.message
        if self._peer.role == "agent" or isinstance(message, AgentBeat):
            self._hear_agent(message, frame.tag)
            return
        answered = self._asked.pop(frame.tag, None) if isinstance(message, _ANSWERS) else None
        if answered is not None:
            answered(message)
        elif isinstance(message, Register | ReportChunks | Heartbeat):
            self._tell_cluster(message, frame.tag)
        elif isinstance(message, CALLS_OF_DATANODES):
            if not self._server.speaks_for_datanode(self):
                raise ProtocolViolation(f"{self.name} asks before it has registered")
            try:
                self._server.spawn(self._answer(message, frame.tag))
            except Overloaded as error:
                self.write(Failure(error.code, error.message), frame.tag)
        else:
            raise ProtocolViolation(f"{type(message).__name__} has no place here")

    def _continue_handshake(self, message: Message) -> None:
        if self._handshake is None:
            address = self._transport.get_extra_info("sockname")
            reached = f"{address[0]}:{address[1]}"
            channel = channel_of(self._transport)
            self._handshake = accepting(self._server.me, os.urandom(16), message, channel=channel, reached=reached)
            self.write(next(self._handshake))
            return
        try:
            self._handshake.send(message)
        except StopIteration as stop:
            peer = cast(Peer, stop.value)
            if not peer.trusted:
                raise PeerRefused(
                    "only datanodes of this cluster connect here; clients use the port for HTTP"
                ) from None
            self._peer = peer
            if (keys := peer.frame_keys) is not None:
                self._sealer, self._frames.opener = Sealer(keys.sending), Opener(keys.receiving)
            self.write(peer.last_word)
            self.name = peer.name
            self._frames.bytes_max = frame_bytes_max
            self._server.greeted(self)

    def _hear_agent(self, message: Message, tag: int) -> None:
        """What runs queries speaks of them and of nothing else, and under its own name."""
        assert self._peer is not None
        if self._peer.role != "agent" or not isinstance(message, AgentBeat) or message.agent != self.name:
            raise ProtocolViolation(
                f"{type(message).__name__} is nothing for {self._peer.role} {self.name} to say"
            )
        self._server.spawn(self._answer_agent(message, tag))

    async def _answer_agent(self, beat: AgentBeat, tag: int) -> None:
        try:
            reply: Message = await self._server.supervising.heard(beat)
        except PeacefsError as error:
            reply = Failure(error.code, error.message)
        with contextlib.suppress(RuntimeError):
            self.write(reply, tag)

    def _tell_cluster(self, message: Register | ReportChunks | Heartbeat, tag: int) -> None:
        server, now_s = self._server, self._server.clock()
        if isinstance(message, Register):
            if server.cluster.is_loaded:
                self._register(message, tag)
            else:
                server.keep_waiting(self, message, tag)
        elif not server.speaks_for_datanode(self):
            self.write(ReportAgain(), tag)
        elif isinstance(message, ReportChunks):
            self._send_out(server.cluster.report(now_s, self.name, message))
            self.write(Done(), tag)
        else:
            self._send_out(server.cluster.heartbeat(now_s, self.name, message))
            trust = server.trust()
            changed, self._trust = None if trust is self._trust else trust, trust
            self.write(HeartbeatAck(server.epoch(), server.wall_clock(), server.commit(), changed), tag)

    def register(self, message: Register, tag: int) -> None:
        """What the datanode asked for a while ago; it has been silent since, for want of an answer."""
        self._heard_s = self._server.clock()
        try:
            self._register(message, tag)
        except PeacefsError as error:
            self._refuse(error)

    def _register(self, message: Register, tag: int) -> None:
        server = self._server
        if message.node != self.name:
            raise ProtocolViolation(f"{self.name} registers as {message.node}")
        assert self._peer is not None
        if not server.files.credentials.is_enrolled(message, self._peer.transcript):
            server.spawn(self._enrol(message, tag))
            return
        server.check_alone(message)
        self.process = message.process
        server.on_epoch_seen(message.node, message.epoch_seen, message.commit_seen)
        server.cluster.register(server.clock(), message)
        server.registered(self)
        server.files.schedule.registered(message.node, message.streams)
        self._host = message.data_host
        log.info(
            "datanode %s registered: %s:%d, rack %s",
            message.node,
            message.data_host,
            message.data_port,
            message.rack,
        )
        self._trust = server.trust()
        self.write(Registered(server.epoch(), server.wall_clock(), self._trust), tag)

    async def _enrol(self, message: Register, tag: int) -> None:
        """The first registration under an id, which the cluster secret allows: it gets the id."""
        try:
            await self._server.files.credentials.enrol(message.node, message.public_key)
        except PeacefsError as error:
            self._refuse(error)
            return
        if not self._transport.is_closing():
            self.register(message, tag)

    def _send_out(self, orders: Sequence[Order]) -> None:
        for order in orders:
            # A node that has still to register is known by this link alone.
            if order.node == self.name:
                self.write(order.message)
            else:
                self._server.send([order])

    async def _answer(self, message: Message, tag: int) -> None:
        server = self._server
        reply = await answer(server.files, message, self._host, self.name, link=self.name, audited=server.audited)
        with contextlib.suppress(RuntimeError):
            self.write(reply, tag)
