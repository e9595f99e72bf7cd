"""Frames over a blocking socket, with deadlines. `connection_handshakes` opens and accepts connections."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from peacefs.protocol.errors import (
    PeerTimeout,
    PeerUnreachable,
)
from peacefs.protocol.frames import (
    PREFIX_BYTES,
    Frame,
    decode_message,
    decode_prefix,
    frame_bytes_max,
)
from peacefs.protocol.limits import (
    KIB,
    frame_ahead_bytes,
    handshake_frame_bytes_max,
    packet_bytes,
    tls_handshake_timeout_s,
)
from peacefs.protocol.messages import Message
from peacefs.protocol.seals import FrameKeys, Opener, Sealer
from peacefs.runtime.frame_budget import FrameBudget

from . import effects as fx
from .disk_files import DiskFile
from .in_process_payloads import Ends, InProcessPayloads
from .local_sockets import receive_with_file
from .protected_stream import ProtectedStream
from .sealed_source import SealedSource
from .sending_end import SendingEnd
from .tls_socket import TlsSocket, await_tls

# Initial size of a connection's buffer, which doubles whenever it is full.
frame_buffer_bytes_min: Final = 64 * KIB


class SocketConnection(SendingEnd):
    """Frames over a blocking socket, with reusable receive buffers. Drivers of participants use it.

    A thread releases the interpreter lock for every system call, and under load getting it back costs more than
    the call. Therefore one call receives a small frame and whatever follows it; surplus bytes are kept in `_ahead`
    for the next frame. A received payload is valid until the next receive.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        super().__init__(sock, peer)
        self._buffer = bytearray()
        #: Received bytes that were not returned yet are those from `_at` to `_end`.
        self._ahead = memoryview(bytearray(frame_ahead_bytes))
        self._at = self._end = 0
        self._frame_bytes_max = handshake_frame_bytes_max
        self.local_address: fx.Address | None = None
        self.idle_since = 0.0
        #: The budget that the buffer counts against, if any.
        self._budget: FrameBudget[SocketConnection] | None = None
        #: True if a reactor has registered the socket with epoll.
        self.is_polled = False
        #: True if a frame has begun to arrive that is too large for `receive_now`.
        self.is_large_ahead = False
        #: Source of large payloads if the peer is in this process.
        self._takes: InProcessPayloads | None = None
        #: Verifies all received data after the handshake, if the connection is sealed.
        self._source: SealedSource | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def secure(self, context: ssl.SSLContext, host: str | None = None) -> None:
        """Start TLS, before the first frame. `host` is the host that a connector dialled, None for an acceptor.

        Raises PeerRefused, PeerTimeout, PeerUnreachable.
        """
        tls = TlsSocket(self._wire, context, self.peer, server_hostname=host)
        try:
            if host is None:
                await_tls(self._wire, self.peer, tls_handshake_timeout_s)
            tls.shake_hands(tls_handshake_timeout_s)
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} did not finish the TLS handshake in time") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None
        self._socket = tls
        # The TLS handshake has changed the socket's timeouts.
        self._timeouts_s = dict.fromkeys(self._timeouts_s, 0.0)

    @property
    def channel(self) -> bytes:
        """The SHA-256 of the acceptor's certificate; empty without TLS."""
        return self._socket.channel if isinstance(self._socket, TlsSocket) else b""

    @property
    def has_peer_certificate(self) -> bool:
        return isinstance(self._socket, TlsSocket) and self._socket.has_peer_certificate

    def seal(self, keys: FrameKeys | None) -> None:
        """Seal all further data in both directions. Does nothing without keys."""
        if keys is not None:
            assert not self.has_bytes_ahead, "what came before the keys is not sealed"
            assert not self.channel, "what TLS protects has no seals"
            self._sealer = Sealer(keys.sending)
            self._source = SealedSource(self._wire, Opener(keys.receiving))

    def hand_over(self) -> ProtectedStream:
        """Return the socket for other use, after the handshake. The connection must not be used any more."""
        assert not self.has_bytes_ahead, "bytes that were received already would be lost"
        if isinstance(self._socket, TlsSocket):
            tls = self._socket
            return ProtectedStream(self._wire, lambda head, payload: [tls.seal((head, payload))], tls.open)
        assert self._sealer is not None, "only services hand over sockets"
        assert self._source is not None
        return ProtectedStream(self._wire, self._sealer.seal, self._source.opener.open)

    def receive_descriptor(self, timeout_s: float) -> tuple[Message, DiskFile | None]:
        """Receive a message over a local socket, and the open file that was sent with it, if any."""
        assert not self.has_bytes_ahead, "what comes with a frame that was taken in already is lost"
        try:
            self._limit(socket.SO_RCVTIMEO, timeout_s)
            self._at = 0
            came, descriptor = receive_with_file(self._wire, self._ahead)
            self._end = came
            if self._source is not None and came:
                self._source.came_with_file(self._ahead[:came])
                self._end = self._receive_into(self._ahead, 0)
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} said nothing for {timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None
        if not came:
            raise PeerUnreachable(f"{self.peer} closed the connection")
        try:
            return self.receive(timeout_s).message, None if descriptor is None else DiskFile(descriptor)
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise

    @property
    def has_bytes_ahead(self) -> bool:
        """True if bytes were received that no frame has been made of."""
        if self._source is not None and self._source.has_more:
            return True
        return self._at < self._end or (isinstance(self._socket, TlsSocket) and self._socket.has_pending)

    def receive_now(self) -> Frame | None:
        """Return a received frame without waiting; None if it is incomplete or too large (`is_large_ahead`)."""
        kept = self._end - self._at
        if kept and ((frame := self._frame_ahead()) is not None or self.is_large_ahead):
            return frame
        if self._at:
            self._ahead[:kept] = bytes(self._ahead[self._at : self._end])
            self._at, self._end = 0, kept
        try:
            self._end += self._receive_into(self._ahead[kept:], socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None
        return self._frame_ahead()

    def _frame_ahead(self) -> Frame | None:
        come = self._ahead[self._at : self._end]
        self.is_large_ahead = False
        if len(come) < PREFIX_BYTES:
            return None
        prefix = decode_prefix(come, self._frame_bytes_max)
        end = PREFIX_BYTES + prefix.message_bytes + prefix.payload_bytes
        self.is_large_ahead = end > len(self._ahead)
        if len(come) < end:
            return None
        self._at += end
        message_end = PREFIX_BYTES + prefix.message_bytes
        return Frame(decode_message(prefix, come[PREFIX_BYTES:message_end]), come[message_end:end], prefix.tag)

    def frames_after(self, first: Frame, more_after: Callable[[Frame], bool]) -> list[Frame]:
        """Return `first` and the complete frames after it, up to one for which `more_after` returns False."""
        frames = [first]
        while self._at < self._end and more_after(frames[-1]) and (frame := self._frame_ahead()) is not None:
            frames.append(frame)
        return frames

    def receive(self, timeout_s: float, into: memoryview | None = None, payload_max: int | None = None) -> Frame:
        """Receive a frame. Its first bytes, and then the rest of it, may each take `timeout_s`.

        A large payload is received directly into `into` if it fits. Of a payload longer than `payload_max`, only
        that part is received; get the rest with `receive_more`.
        """
        try:
            self._limit(socket.SO_RCVTIMEO, timeout_s)
            self._look_ahead(PREFIX_BYTES, time.monotonic() + timeout_s)
            prefix = decode_prefix(self._ahead[self._at : self._end], self._frame_bytes_max)
            self._at += PREFIX_BYTES
            deadline_s = time.monotonic() + timeout_s
            if self._takes is not None and prefix.payload_bytes > frame_ahead_bytes:
                message = decode_message(prefix, self._take_in(prefix.message_bytes, deadline_s))
                return Frame(message, self._takes.take(), prefix.tag)
            count = prefix.payload_bytes if payload_max is None else min(prefix.payload_bytes, payload_max)
            unread = prefix.payload_bytes - count
            if into is not None and self._is_large(prefix.message_bytes, count) and count <= len(into):
                message = decode_message(prefix, self._take_in(prefix.message_bytes, deadline_s))
                return Frame(message, self._take_into(into[:count], deadline_s), prefix.tag, unread)
            view = self._take_in(prefix.message_bytes + count, deadline_s)
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} said nothing for {timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None
        message = decode_message(prefix, view[: prefix.message_bytes])
        return Frame(message, view[prefix.message_bytes :], prefix.tag, unread)

    def receive_more(self, count: int, timeout_s: float, into: memoryview | None = None) -> memoryview:
        """Receive the next `count` bytes of a payload of which `receive` has returned the beginning."""
        try:
            self._limit(socket.SO_RCVTIMEO, timeout_s)
            deadline_s = time.monotonic() + timeout_s
            if into is not None and self._end - self._at < count <= len(into):
                return self._take_into(into[:count], deadline_s)
            return self._take_in(count, deadline_s)
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} said nothing for {timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def greeted(
        self, bytes_max: int = frame_bytes_max, budget: FrameBudget[SocketConnection] | None = None
    ) -> None:
        """Accept frames up to this size after the handshake; their buffer counts against `budget`."""
        self._frame_bytes_max = bytes_max
        self._budget = budget

    def rest(self) -> None:
        """Free the buffer between requests, if it counts against a shared budget."""
        if self._budget is not None and self._buffer:
            self._buffer = bytearray()
            self._budget.hold(self, 0)

    def _hold(self, count: int) -> bytearray:
        """Return a new buffer, within the budget. The old one may still be in use by the previous receiver."""
        if self._budget is not None and (longest := self._budget.hold(self, count)) is not None:
            if longest is self:
                raise self._budget.overloaded()
            longest.shut_down()
        return bytearray(count)

    def _look_ahead(self, wanted: int, deadline_s: float) -> None:
        """Receive what has arrived into `_ahead`, at least `wanted` bytes."""
        kept = self._end - self._at
        if kept >= wanted:
            return
        self._ahead[:kept] = bytes(self._ahead[self._at : self._end])
        self._at, self._end = 0, kept
        while self._end < wanted:
            self._end += self._receive_into(self._ahead[self._end :], 0)
            if self._end < wanted:
                self._check(deadline_s)

    def _take_in(self, total: int, deadline_s: float) -> memoryview:
        """Receive the next `total` bytes. The buffer grows with the data received, not with the announced size."""
        if total <= self._end - self._at:
            start, self._at = self._at, self._at + total
            return self._ahead[start : self._at]
        filled = self._end - self._at
        if len(self._buffer) < filled:
            self._buffer = self._hold(min(total, frame_buffer_bytes_min))
        self._buffer[:filled] = self._ahead[self._at : self._end]
        self._at = self._end = 0
        while filled < total:
            if filled == len(self._buffer):
                larger = self._hold(min(total, max(2 * filled, frame_buffer_bytes_min)))
                larger[:filled] = self._buffer
                self._buffer = larger
            end = min(total, len(self._buffer))
            self._fill(memoryview(self._buffer)[filled:end], deadline_s)
            filled = end
        return memoryview(self._buffer)[:total]

    def _is_large(self, message_bytes: int, payload_bytes: int) -> bool:
        """Return whether the message is in `_ahead` but the payload is not, or only in part."""
        return message_bytes <= self._end - self._at < message_bytes + payload_bytes

    def _take_into(self, target: memoryview, deadline_s: float) -> memoryview:
        filled = self._end - self._at
        target[:filled] = self._ahead[self._at : self._end]
        self._at = self._end = 0
        self._fill(target[filled:], deadline_s)
        return target

    def _fill(self, view: memoryview, deadline_s: float) -> None:
        while len(view):
            count = self._receive_into(view, socket.MSG_WAITALL)
            view = view[count:]
            # A call that returns less than requested has used up the socket's timeout.
            if len(view) and count < packet_bytes:
                self._check(deadline_s)

    def _receive_into(self, view: memoryview, flags: int) -> int:
        if self._source is not None:
            opened = self._source.recv_into(view, flags)
            if opened is not None:
                return opened
            count = 0
        else:
            count = self._socket.recv_into(view, 0, flags)
        if count == 0:
            raise PeerUnreachable(f"{self.peer} closed the connection")
        return count

    def _check(self, deadline_s: float) -> None:
        """Raise PeerTimeout after the deadline."""
        if time.monotonic() >= deadline_s:
            raise PeerTimeout(f"{self.peer} sends its frame too slowly")

    def has_been_closed(self) -> bool:
        """Return whether the peer closed an idle connection, or sent something unexpected on it."""
        if self.has_bytes_ahead:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    @property
    def ends(self) -> Ends | None:
        if self.is_local:
            return None
        try:
            return self._socket.getsockname()[:2], self._socket.getpeername()[:2]
        except OSError:
            return None

    def takes_from(self, payloads: InProcessPayloads) -> None:
        self._takes = payloads

    def _end_in_process(self) -> None:
        for payloads in (self._gives, self._takes):
            if payloads is not None:
                payloads.end()

    def shut_down(self) -> None:
        """Wake the threads that are blocked on the connection. Callable from any thread."""
        self._end_in_process()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def is_closed(self) -> bool:
        """True if this side has closed the connection."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._end_in_process()
        self._socket.close()
        if self._budget is not None:
            self._budget.hold(self, 0)
