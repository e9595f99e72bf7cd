"""TLS over a blocking socket, with the socket operations that `connections` uses.

OpenSSL works on memory buffers, and this class moves the bytes between them and the socket. So the socket keeps
its timeouts and flags, and one thread may send while another receives. The lock is held while data is encrypted or
decrypted, never while waiting. Receiving returns all decrypted data before it reads the socket, so a caller that
got nothing can wait by polling the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final, cast

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeerRefused, PeerUnreachable
from peacefs.protocol.limits import KIB, frame_ahead_bytes, last_word_timeout_s
from peacefs.protocol.messages import Hello, Message
from peacefs.runtime.tls import ServerContext, channel_of_certificate
from peacefs.runtime.tls_faults import (
    PLAIN_REFUSED,
    SERVICE_OPTIONS,
    TLS_FIRST_BYTE,
    explain,
    is_about_certificates,
    plain_refusal,
)

# Maximum size encrypted or received at once. Larger pieces are slower, as their memory comes fresh from the
# kernel.
tls_sealed_bytes_max: Final = 64 * KIB


_TIMEVAL = struct.Struct("@ll")
# Maximum data of a TLS record, and maximum overhead per record.
_RECORD_BYTES = 16 * 1024
_OVERHEAD_BYTES = 256
_own = threading.local()


class TlsSocket:
    """A TLS connection with the interface of a blocking socket, for SocketConnection.

    One thread may send while another one receives. Timeouts are set with setsockopt, as on the socket below.
    """

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, peer: str, *, server_hostname: str | None = None
    ) -> None:
        """Be the acceptor if `context` is a ServerContext; else a connector that requires `server_hostname`."""
        self._socket = sock
        self._peer = peer
        self._host = server_hostname or ""
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_server = isinstance(context, ServerContext)
        self._context = context
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=server_hostname
        )
        self._is_over = False
        self._has_received = False
        self._timeouts_s = {socket.SO_RCVTIMEO: 0.0, socket.SO_SNDTIMEO: 0.0}

    # -- the handshake -------------------------------------------------------------------------------

    def shake_hands(self, timeout_s: float) -> None:
        """Complete the TLS handshake. Raises PeerRefused, PeerUnreachable, OSError; BlockingIOError on timeout."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._wait_no_longer_than(deadline_s)
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
            except ssl.SSLError as fault:
                # Send the alert that tells the peer.
                with contextlib.suppress(OSError):
                    self._socket.sendall(self._outgoing.read())
                raise self._explained(fault) from None
            else:
                self._socket.sendall(self._outgoing.read())
                return
            self._take(_RECORD_BYTES, 0)
            if self._is_over:
                raise PeerUnreachable(f"{self._peer} closed the connection during the TLS handshake")

    def _wait_no_longer_than(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise BlockingIOError
        _limit(self._socket, left_s)

    @property
    def channel(self) -> bytes:
        """The SHA-256 of the acceptor's certificate."""
        if isinstance(self._context, ServerContext):
            return self._context.channel
        return channel_of_certificate(self._object.getpeercert(binary_form=True))

    @property
    def has_peer_certificate(self) -> bool:
        return self._object.getpeercert(binary_form=True) is not None

    # -- receiving -----------------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """True if bytes were received and not returned yet."""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def recv_into(self, view: memoryview, _count: int, flags: int) -> int:
        """Receive like `socket.recv_into`, with MSG_DONTWAIT, MSG_WAITALL or neither; 0 at the end."""
        filled = self._receive_into(view, flags)
        if filled:
            self._has_received = True
        elif not self._has_received and not isinstance(self._context, ServerContext):
            # In TLS 1.3 the acceptor checks our certificate after our handshake ends, and may close without an
            # alert.
            raise PeerUnreachable(
                f"{self._peer} closed the connection after the TLS handshake: its log says why. Does it trust the "
                "CA of this side's certificate?"
            )
        return filled

    def _receive_into(self, view: memoryview, flags: int) -> int:
        filled = self._open_into(view)
        if flags & socket.MSG_DONTWAIT:
            while not filled and not self._is_over:
                self._take(len(view), socket.MSG_DONTWAIT)
                filled = self._open_into(view)
            return filled
        deadline_s = time.monotonic() + self._timeouts_s[socket.SO_RCVTIMEO]
        wanted = len(view) if flags & socket.MSG_WAITALL else 1
        while filled < wanted and not self._is_over:
            try:
                self._take(len(view) - filled, 0)
            except BlockingIOError:
                if filled:
                    break
                raise
            filled += self._open_into(view[filled:])
            if filled < wanted and time.monotonic() >= deadline_s:
                if filled:
                    break
                raise BlockingIOError
        return filled

    def recv(self, count: int, flags: int) -> bytes:
        """Check with MSG_PEEK whether data has arrived; the result is not the data."""
        assert flags & socket.MSG_PEEK, "data is received by `recv_into`"
        return b"?" if self.has_pending else self._socket.recv(count, flags)

    def open(self, data: bytes) -> bytes:
        """Decrypt bytes that an event loop has received from the socket. Raises PeerRefused or PeerUnreachable."""
        with self._lock:
            self._incoming.write(data)
        opened = []
        view = _scratch()
        while count := self._open_into(view):
            opened.append(bytes(view[:count]))
        return b"".join(opened)

    def _take(self, wanted: int, flags: int) -> None:
        """Receive encrypted bytes for about `wanted` bytes of data, and pass them to OpenSSL."""
        scratch = _scratch()
        size = wanted + (wanted // _RECORD_BYTES + 1) * _OVERHEAD_BYTES
        count = self._socket.recv_into(scratch, min(size, len(scratch)), flags)
        if not count:
            self._is_over = True
            return
        with self._lock:
            self._incoming.write(scratch[:count])

    def _open_into(self, view: memoryview) -> int:
        """Decrypt received data into `view`; return the number of bytes."""
        filled, incoming, opened = 0, self._incoming, self._object
        with self._lock:
            while filled < len(view) and (incoming.pending or opened.pending()):
                try:
                    count = _read(opened, view[filled:])
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLZeroReturnError:
                    self._is_over = True
                    break
                except ssl.SSLError as fault:
                    raise self._explained(fault) from None
                filled += count
        return filled

    # -- sending -------------------------------------------------------------------------------------

    def seal(self, buffers: Sequence[Bytes]) -> bytes:
        """Encrypt. All of the result must be sent before anything else is encrypted."""
        if sum(map(len, buffers)) <= _RECORD_BYTES:
            buffers = (b"".join(buffers),)
        with self._lock:
            for buffer in buffers:
                if len(buffer):
                    self._object.write(buffer)
            return self._outgoing.read()

    def send(self, data: Bytes) -> int:
        """Send all data. Raises BlockingIOError on timeout."""
        return self.sendmsg((b"", data))

    def sendmsg(self, buffers: Sequence[Bytes]) -> int:
        """Send a head and its payload. Raises BlockingIOError on timeout."""
        deadline_s = time.monotonic() + self._timeouts_s[socket.SO_SNDTIMEO]
        head, payload = buffers[0], memoryview(b"".join(buffers[1:]) if len(buffers) != 2 else buffers[1])
        self._send_sealed(self.seal((head, payload[:tls_sealed_bytes_max])), deadline_s)
        for at in range(tls_sealed_bytes_max, len(payload), tls_sealed_bytes_max):
            self._send_sealed(self.seal((payload[at : at + tls_sealed_bytes_max],)), deadline_s)
        return len(head) + len(payload)

    def send_file(self, head: Bytes, descriptor: int, offset: int, length: int) -> int:
        """Send `head` and a piece of a file; return the size of the piece, 0 at the end of the file."""
        scratch = _scratch()
        count = os.preadv(descriptor, (scratch[: min(length, len(scratch))],), offset)
        if count:
            self.sendmsg((head, scratch[:count]))
        return count

    def _send_sealed(self, sealed: bytes, deadline_s: float) -> None:
        sent = self._socket.send(sealed)
        while sent < len(sealed):
            # A call that sends less than all has used up the socket's timeout.
            if time.monotonic() >= deadline_s:
                raise BlockingIOError
            sent += self._socket.send(memoryview(sealed)[sent:])

    # -- as the socket beneath -----------------------------------------------------------------------

    @property
    def family(self) -> int:
        return self._socket.family

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if option in self._timeouts_s:
            seconds, microseconds = _TIMEVAL.unpack(value)
            self._timeouts_s[option] = seconds + microseconds / 1_000_000
        self._socket.setsockopt(level, option, value)

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockname(self) -> tuple[str, int]:
        name: tuple[str, int] = self._socket.getsockname()[:2]
        return name

    def getpeername(self) -> tuple[str, int]:
        name: tuple[str, int] = self._socket.getpeername()[:2]
        return name

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def _explained(self, fault: ssl.SSLError) -> PeerRefused | PeerUnreachable:
        kind = PeerRefused if is_about_certificates(fault) else PeerUnreachable
        return kind(f"{self._peer} {explain(fault, self._host)}")


def await_tls(sock: socket.socket, peer: str, timeout_s: float) -> None:
    """Wait for the first byte of a TLS handshake. If the peer does not use TLS, refuse it and raise PeerRefused.

    Raises PeerUnreachable if the peer closes, BlockingIOError on timeout, and OSError.
    """
    _limit(sock, timeout_s)
    first = sock.recv(1, socket.MSG_PEEK)
    if first == TLS_FIRST_BYTE:
        return
    if not first:
        raise PeerUnreachable(f"{peer} closed the connection")
    with contextlib.suppress(OSError):
        _limit(sock, last_word_timeout_s)
        sock.send(plain_refusal(first))
        sock.shutdown(socket.SHUT_WR)
        # Closing a socket with unread data would discard the answer.
        sock.recv(frame_ahead_bytes)
    raise PeerRefused(f"{peer} does not speak TLS, and {PLAIN_REFUSED}")


def _limit(sock: socket.socket, timeout_s: float) -> None:
    seconds, microseconds = divmod(max(int(timeout_s * 1_000_000), 1), 1_000_000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(seconds, microseconds))


def require_certificate(hello: Message, *, is_shown: bool) -> None:
    """Check that a service shows a certificate; clients need none. Raises PeerRefused."""
    if isinstance(hello, Hello) and hello.role != "client" and not is_shown:
        raise PeerRefused(f"{hello.name} shows no certificate, as services do: {SERVICE_OPTIONS}")


def _read(opened: ssl.SSLObject, view: memoryview) -> int:
    # With a buffer, `read` returns a count, although its type says bytes.
    return cast(int, opened.read(len(view), view))


def _scratch() -> memoryview:
    """Return this thread's buffer for one receive or file read; its content is copied at once."""
    try:
        kept: memoryview = _own.scratch
    except AttributeError:
        kept = _own.scratch = memoryview(bytearray(tls_sealed_bytes_max))
    return kept
