"""Clients' framed connections, for control calls.

They use the port for HTTP (`service/http_server.py` tells them apart by their first byte), so clients need no
other address. Clients know no secret and may ask only what REST allows. The token of the hello names the user and
is verified for each call; where user names are believed, each call names its user.

Everything runs on the event loop. The calls of a connection are carried out and answered in order. The answers are
sent when all calls that have arrived on any connection are carried out: one write per connection, and all writes
together, because a client that each write wakes would sleep again before the next one. An answer that waits until
the metadata is durable holds up the later answers of its connection. A call that waits for anything else holds up
the later calls, too. Neither holds up another connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, cast

from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.limits import http_requests_in_flight_max, link_at_once_bytes, link_backlog_bytes_max
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import (
    Overloaded,
    PeacefsError,
    PeerRefused,
    PeerTimeout,
    ProtocolViolation,
    ServiceUnready,
)
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import Identity, Peer, accepting
from peacefs.protocol.limits import (
    MIB,
    begun_frame_timeout_s,
    begun_frames_bytes_max,
    handshake_frame_bytes_max,
    handshake_timeout_s,
    idle_connection_timeout_s,
)
from peacefs.protocol.messages import Failure, Hello, Message
from peacefs.protocol.trace_context import switch_to
from peacefs.runtime.counters import frames_sent
from peacefs.runtime.frame_budget import ConnectionCounts, FrameBudget
from peacefs.service.tls_listener import channel_of

from .audited_calls import AuditedRpc
from .dispatch import CALLS_OF_CLIENTS, OpenCall, Origin

# A client's frame is bounded by its description of a file: a completion names the receipts of all its chunks.
client_frame_bytes_max: Final = 2 * MIB
client_links_max: Final = 4096
client_links_per_address_max: Final = 2048
# Maximum number of calls of one connection that are carried out before other connections have a turn, and of its
# answers that wait until the metadata is durable.
calls_per_turn_max: Final = 64


_WRONG_PORT = (
    "this is the coordinator's port for clients (--port), datanodes and agents come to the one of --node-port"
)
log = logging.getLogger("peacefs.coordinator")


class ClientLinks:
    """All framed connections of clients."""

    def __init__(
        self,
        me: Identity,
        files: Files,
        clock: Callable[[], float] = time.monotonic,
        authenticate: Callable[[str], Caller] | None = None,
        audited: AuditedRpc | None = None,
        door: Door | None = None,
    ) -> None:
        """Without `authenticate`, which raises Unauthenticated, names are believed.

        `door` lets calls through when this coordinator may answer; without one it always may.
        """
        self.door = door
        self.me = me
        self.authenticate = authenticate
        self.files = files
        self.clock = clock
        self.audited = audited
        self._open: set[ClientLink] = set()
        #: Links without a call under way, idle longest first. A client whose link is closed connects again.
        self._idle: dict[ClientLink, None] = {}
        #: The memory of unfinished frames, and the number of connections per address.
        self.frames: FrameBudget[ClientLink] = FrameBudget(begun_frames_bytes_max)
        self.crowd: ConnectionCounts[str] = ConnectionCounts(client_links_per_address_max)
        #: Links with a call that waits for something, and the task that answers it.
        self._busy: dict[ClientLink, asyncio.Task[Message]] = {}
        #: Links with answers to send when the calls that have arrived are carried out.
        self._answering: list[ClientLink] = []
        #: Links with answers that wait until the metadata is durable.
        self._holding: set[ClientLink] = set()

    def link(self) -> ClientLink:
        """Return the link that serves a new connection."""
        return ClientLink(self)

    def link_of(self, caller: Caller) -> ClientLink:
        """Return the link of a new connection whose caller is known."""
        return ClientLink(self, caller)

    def stop(self) -> None:
        for link in list(self._open):
            link.close()
        for task in list(self._busy.values()):
            task.cancel()

    # -- called by links ---------------------------------------------------------------------------

    def opened(self, link: ClientLink) -> None:
        """Register a new connection; over the limit, close the one that has been idle longest."""
        self._open.add(link)
        self._idle[link] = None
        if len(self._open) > client_links_max:
            next(iter(self._idle)).abort()

    def closed(self, link: ClientLink) -> None:
        self._open.discard(link)
        self._idle.pop(link, None)

    def overload(self) -> Failure | None:
        """Return the reply to another call if too many are under way."""
        under_way = len(self._busy) + len(self._holding)
        if under_way < http_requests_in_flight_max:
            return None
        error = Overloaded(f"{under_way} calls are under way already; try again")
        return Failure(error.code, error.message)

    def waits(self, link: ClientLink, answering: asyncio.Task[Message]) -> None:
        """Record that a link has a call that waits for something. It must call `ended` when the call has ended."""
        self._busy[link] = answering
        self._idle.pop(link, None)

    def answer_soon(self, link: ClientLink) -> None:
        if not self._answering:
            asyncio.get_running_loop().call_soon(self.answer)
        self._answering.append(link)

    def answer(self) -> None:
        """Send the answers to the calls that have been carried out."""
        links, self._answering = self._answering, []
        for link in links:
            link.answer()

    def holds(self, link: ClientLink) -> None:
        """Record that a link has answers that wait. It must call `answered` when it has none."""
        self._holding.add(link)
        self._idle.pop(link, None)

    def ended(self, link: ClientLink) -> None:
        del self._busy[link]
        if link in self._open:
            self._idle[link] = None

    def answered(self, link: ClientLink) -> None:
        """Move a link without answers that wait to the end of the idle ones, because it has just called."""
        if link in self._holding:
            self._holding.remove(link)
            if link in self._open:
                self._idle[link] = None
        elif link in self._idle:
            del self._idle[link]
            self._idle[link] = None

    def caller_of(self, peer: Peer, caller: Caller | None) -> Callable[[], Caller] | None:
        """Return what authenticates the calls of a connection; None if the users that messages name are believed.

        A token is verified for each call, because it may have expired since the last one.
        """
        if caller is not None:
            return lambda: caller
        return None if self.authenticate is None else partial(self.authenticate, peer.credential)


class ClientLink(asyncio.Protocol):
    """One connection."""

    def __init__(self, links: ClientLinks, caller: Caller | None = None) -> None:
        self._links = links
        self._caller = caller
        self._frames = FrameReader(handshake_frame_bytes_max)
        self._transport: asyncio.Transport
        self._handshake: Generator[Message, Message, Peer] | None = None
        self._peer: Peer | None = None
        #: Where the calls come from. Set by the handshake.
        self._origin: Origin
        self._host: str | None = None
        #: True while a call waits, so that no further one may begin.
        self._is_busy = False
        self._is_paused = False
        #: The replies that have not been sent, in order, with their calls and tags. The first one is about to be
        #: sent, or waits until the metadata is durable.
        self._unsent: deque[tuple[OpenCall, Message, int]] = deque()
        self._heard_s = 0.0
        self._deadline: asyncio.TimerHandle
        #: For the rest of a frame that has begun.
        self._frame_deadline: asyncio.TimerHandle | None = None
        self._held_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self._host = address[0] if isinstance(address, tuple) else None
        self._links.opened(self)
        self._deadline = asyncio.get_running_loop().call_later(handshake_timeout_s, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._expect_rest(0)
        self._links.closed(self)
        if self._peer is not None:
            self._links.crowd.leave(self._peer_address)

    @property
    def _peer_address(self) -> str:
        return self._host or "an unknown address"

    def data_received(self, data: bytes) -> None:
        self._frames.take(data)
        self._work()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._links.closed(self)
        self._transport.abort()

    def _close_if_silent(self) -> None:
        idle_s = self._links.clock() - self._heard_s
        is_idle = not (self._is_busy or self._unsent)
        if self._peer is None or (idle_s >= idle_connection_timeout_s and is_idle):
            self._transport.abort()
            return
        wait_s = max(idle_connection_timeout_s - idle_s, handshake_timeout_s)
        self._deadline = asyncio.get_running_loop().call_later(wait_s, self._close_if_silent)

    @property
    def _is_full(self) -> bool:
        """Return whether no further call may begin until answers have been sent."""
        return len(self._unsent) >= calls_per_turn_max

    def _work(self) -> None:
        """Carry out the calls that have arrived, until one of them waits or other connections must have a turn."""
        try:
            while not (self._is_busy or len(self._unsent) >= calls_per_turn_max or self._transport.is_closing()):
                frame = self._frames.next()
                if frame is None:
                    break
                if self._held_bytes:
                    self._expect_rest(0)
                if self._peer is None:
                    self._heard_s = self._links.clock()
                    self._continue_handshake(frame.message)
                else:
                    self._call(frame.message, frame.tag)
        except PeacefsError as error:
            self.refuse(error)
        finally:
            # What the event loop runs next belongs to no request.
            switch_to(None)
        if self._frames.buffered_bytes or self._held_bytes or self._is_paused:
            self._expect_rest(0 if self._transport.is_closing() else self._frames.buffered_bytes)
            self._read_while_there_is_room()

    def _call(self, message: Message, tag: int) -> None:
        """Carry out a call, and have it answered when it need not wait any more."""
        if type(message) not in CALLS_OF_CLIENTS:
            raise ProtocolViolation(f"a client may not send {type(message).__name__}: {_WRONG_PORT}")
        links = self._links
        call = OpenCall(self._origin, message)
        replied = links.overload() or call.begin()
        if isinstance(replied, asyncio.Task):
            self._heard_s = links.clock()
            self._is_busy = True
            links.waits(self, replied)
            replied.add_done_callback(partial(self._answer_late, call, tag))
        else:
            self._answer_soon(call, replied, tag)

    def _answer_late(self, call: OpenCall, tag: int, replied: asyncio.Task[Message]) -> None:
        """Answer a call that has waited, and carry out the next calls."""
        self._is_busy = False
        self._links.ended(self)
        if not replied.cancelled():
            self._answer_soon(call, replied.result(), tag)
            self._work()

    def _answer_soon(self, call: OpenCall, reply: Message, tag: int) -> None:
        self._unsent.append((call, reply, tag))
        if len(self._unsent) > 1:
            return
        if needed := call.awaited:
            self._hold(needed)
        else:
            self._links.answer_soon(self)

    def _hold(self, needed: int) -> None:
        """Have `answer` called when an entry is durable or was undone."""
        self._links.holds(self)
        self._links.files.durable.when_durable(needed, self.answer)

    def answer(self, refusal: ServiceUnready | None = None) -> None:
        """Send the answers that need not wait. `refusal` is why the entry was undone that the first one needed."""
        self._send_answers(refusal)
        if self._frames.buffered_bytes:
            self._work()

    def _send_answers(self, refusal: ServiceUnready | None = None) -> None:
        # Only complete calls show that the client is alive, not single bytes.
        self._heard_s = self._links.clock()
        try:
            frames = self._finish_calls(refusal)
        except Exception:
            # The caller has other connections to answer.
            log.exception("closing the connection of a client on %s: an answer cannot be sent", self._host)
            self._unsent.clear()
            self.abort()
            frames = []
        if not self._unsent:
            self._links.answered(self)
        self._send(frames)

    def _finish_calls(self, refusal: ServiceUnready | None) -> list[bytes]:
        """Return the answers to send now. If one must wait, have `answer` called when it need not any more."""
        frames: list[bytes] = []
        while self._unsent:
            call, reply, tag = self._unsent[0]
            if refusal is None and (needed := call.awaited):
                self._hold(needed)
                break
            self._unsent.popleft()
            frames.append(encode(call.finish(reply, refusal), tag=tag))
            refusal = None
        return frames

    def _expect_rest(self, begun_bytes: int) -> None:
        """Note how many bytes of an unfinished frame have arrived, for the memory limit.

        The frame must end in time, unless a call is being carried out or too many answers wait.
        """
        is_awaited = begun_bytes > 0 and not (self._is_busy or self._is_full)
        if not is_awaited and self._frame_deadline is not None:
            self._frame_deadline.cancel()
            self._frame_deadline = None
        elif is_awaited and self._frame_deadline is None:
            loop = asyncio.get_running_loop()
            self._frame_deadline = loop.call_later(begun_frame_timeout_s, self._give_up)
        self._held_bytes = begun_bytes
        longest = self._links.frames.hold(self, begun_bytes)
        if longest is not None:
            longest.refuse(self._links.frames.overloaded())

    def _give_up(self) -> None:
        self.refuse(PeerTimeout(f"a frame has not ended {begun_frame_timeout_s:g} s after it began"))

    def refuse(self, error: PeacefsError) -> None:
        """End the connection, and say why."""
        log.warning("the connection of a client on %s closed: %s", self._host, error.message)
        self._send_answers()
        self._write(Failure(error.code, error.message))
        self._expect_rest(0)
        self._frames = FrameReader(0)
        self._transport.close()

    def _read_while_there_is_room(self) -> None:
        is_held_up = self._is_busy or self._is_full
        is_paused = is_held_up and self._frames.buffered_bytes > link_at_once_bytes
        if is_paused == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _continue_handshake(self, message: Message) -> None:
        if self._handshake is None:
            if isinstance(message, Hello) and message.role != "client":
                raise PeerRefused(_WRONG_PORT)
            self._handshake = accepting(
                self._links.me, os.urandom(16), message, channel=channel_of(self._transport)
            )
            self._write(next(self._handshake))
            return
        try:
            self._handshake.send(message)
        except StopIteration as stop:
            self._links.crowd.enter(self._peer_address)
            self._peer = cast(Peer, stop.value)
            links = self._links
            self._origin = Origin(
                links.files,
                links.files.durable.rows,
                self._host,
                self._peer.name,
                caller=links.caller_of(self._peer, self._caller),
                door=links.door,
                audited=links.audited,
            )
            self._write(self._peer.last_word)
            self._frames.bytes_max = client_frame_bytes_max

    def _write(self, message: Message, tag: int = 0) -> None:
        self._send([encode(message, tag=tag)])

    def _send(self, frames: list[bytes]) -> None:
        """Send frames soon. Cut off a client that does not read its answers."""
        if not frames or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > link_backlog_bytes_max:
            log.warning("closing the connection of a client on %s, which does not read its answers", self._host)
            self._transport.abort()
            return
        frames_sent.inc(len(frames))
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
