"""One connection of a datanode or an agent: bytes in, messages for `NodeService` out, and back.

The connection carries the peer's requests and the coordinator's orders. Answers of both have the tag of their
request. Everything runs on the event loop; long work is done in turns.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Generator
from typing import Final, Protocol, cast

from peacefs.coordinator.limits import link_at_once_bytes, link_backlog_bytes_max
from peacefs.protocol.errors import (
    PeacefsError,
    PeerRefused,
)
from peacefs.protocol.frames import Frame, FrameReader, encode, frame_bytes_max
from peacefs.protocol.handshake import Identity, Peer, accepting
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import handshake_frame_bytes_max, handshake_timeout_s, idle_connection_timeout_s
from peacefs.protocol.messages import (
    DiskBalance,
    Done,
    Failure,
    Message,
    ReplicasProven,
    UploadsFlushed,
)
from peacefs.protocol.seals import Opener, Sealer
from peacefs.runtime.counters import frames_sent
from peacefs.service.tls_listener import channel_of

from .fair_turns import Turns

# Seconds of work on one datanode's messages per turn. While a datanode has unfinished work, others with more bytes
# than this wait for a turn.
link_turn_s: Final = 0.003


log = logging.getLogger("peacefs.coordinator")


#: The answers to orders and questions.
_ANSWERS = Done | Failure | DiskBalance | ReplicasProven | UploadsFlushed


class LinkOwner(Protocol):
    """The server that a connection belongs to (`server.NodeServer`)."""

    @property
    def me(self) -> Identity: ...

    @property
    def clock(self) -> Callable[[], float]: ...

    @property
    def turns(self) -> Turns: ...

    def opened(self, link: NodeLink) -> None:
        """Register a new connection."""

    def greeted(self, link: NodeLink) -> None:
        """Register that the handshake has ended."""

    def closed(self, link: NodeLink) -> None:
        """Forget a connection."""

    def received(self, link: NodeLink, message: Message, tag: int) -> None:
        """Serve a message that is no answer to an order."""


class NodeLink(asyncio.Protocol):
    """One connection from a datanode."""

    def __init__(self, server: LinkOwner) -> None:
        self._server = server
        self._frames = FrameReader(handshake_frame_bytes_max)
        self._transport: asyncio.Transport
        self._handshake: Generator[Message, Message, Peer] | None = None
        self._peer: Peer | None = None
        #: Seals frames that are sent, after the handshake.
        self._sealer: Sealer | None = None
        self._asked: dict[int, Callable[[Message], None]] = {}
        self._next_tag = 1
        self._deadline: asyncio.TimerHandle
        self._heard_s = 0.0
        #: True if one turn could not handle everything that has arrived. Then reading pauses.
        self._behind = False
        self.name: NodeId = ""

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
            self.refuse(error)
            return
        if self._behind:
            return
        if (self._server.turns.busy and self._frames.buffered_bytes > link_at_once_bytes) or self.work():
            self._behind = True
            self._transport.pause_reading()
            self._server.turns.queue(self)

    def work(self) -> bool:
        """Handle what has arrived, for one turn. Return whether more is left."""
        # Only complete messages are a sign of life, not single bytes.
        turn_ends_s = self._server.clock() + link_turn_s
        try:
            while not self._transport.is_closing() and (frame := self._frames.next()) is not None:
                self._heard_s = self._server.clock()
                self._received(frame)
                if self._server.clock() >= turn_ends_s:
                    return True
        except PeacefsError as error:
            self.refuse(error)
        if self._behind and not self._transport.is_closing():
            self._behind = False
            self._transport.resume_reading()
        return False

    @property
    def role(self) -> str:
        assert self._peer is not None
        return self._peer.role

    @property
    def transcript(self) -> bytes:
        assert self._peer is not None
        return self._peer.transcript

    @property
    def version(self) -> int:
        assert self._peer is not None
        return self._peer.version

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def heard(self) -> None:
        self._heard_s = self._server.clock()

    def refuse(self, error: PeacefsError) -> None:
        log.warning("connection from %s closed: %s", self.name or "an unknown peer", error.message)
        self.write(Failure(error.code, error.message))
        self.close()

    def write(self, message: Message, tag: int = 0) -> None:
        """Queue a message. Cut off a peer that does not read what it is sent."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > link_backlog_bytes_max:
            log.warning("closing the connection of %s, which does not read its messages", self.name)
            self._transport.abort()
            return
        frames_sent.inc()
        frame = encode(message, tag=tag)
        self._transport.write(frame if self._sealer is None else b"".join(self._sealer.seal(frame)))

    def ask(self, message: Message, answered: Callable[[Message], None]) -> None:
        """Send an order. `answered` gets the reply, or a Failure if the connection breaks first."""
        tag = self._next_tag
        self._next_tag += 1
        self._asked[tag] = answered
        self.write(message, tag)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def silence_s(self) -> float:
        """Return how many seconds ago anything arrived."""
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

    # -- received messages ---------------------------------------------------------------------------

    def _received(self, frame: Frame) -> None:
        if self._peer is None:
            self._continue_handshake(frame.message)
            return
        message = frame.message
        answered = self._asked.pop(frame.tag, None) if isinstance(message, _ANSWERS) else None
        if answered is not None:
            answered(message)
        else:
            self._server.received(self, message, frame.tag)

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
