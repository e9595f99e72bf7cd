"""The sending half of a connection: sends messages, payloads and files as frames, with deadlines."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Sequence

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest, PeerTimeout, PeerUnreachable
from peacefs.protocol.frames import Frame, encode
from peacefs.protocol.limits import frame_ahead_bytes, sealed_record_bytes_max
from peacefs.protocol.messages import Message
from peacefs.protocol.seals import Sealer
from peacefs.runtime.counters import frames_sent

from . import effects as fx
from .disk_files import DiskFile
from .in_process_payloads import InProcessPayloads
from .local_sockets import file_for_reading, send_with_file
from .tls_socket import TlsSocket

# struct timeval, as setsockopt takes it.
_TIMEVAL = struct.Struct("@ll")
_TIMEOUT_TOLERANCE = 0.01
_NOTHING = memoryview(b"")
# Errors from `sendfile` that concern the socket; others concern the file. (EBADF: this side closed the socket.)
_FAULTS_OF_A_PEER = {
    errno.EBADF,
    errno.ENOTCONN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
}


class SendingEnd(fx.Connection):
    """The sending half of a connection; `connections.SocketConnection` adds the receiving half.

    Deadlines are the kernel's (SO_RCVTIMEO, SO_SNDTIMEO). Python's timeouts would make the socket non-blocking; a
    packet of 1 MiB would then need a dozen calls instead of one, and the interpreter lock again after each.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)
        self._socket: socket.socket | TlsSocket = sock
        #: The TCP or Unix socket below TLS.
        self._wire = sock
        self._timeouts_s = {socket.SO_RCVTIMEO: 0.0, socket.SO_SNDTIMEO: 0.0}
        self.peer = peer
        #: Destination of large payloads if the peer is in this process.
        self._gives: InProcessPayloads | None = None
        #: Seals all data sent after the handshake, if the connection is sealed.
        self._sealer: Sealer | None = None

    @property
    def is_local(self) -> bool:
        """True if the connection is a local socket."""
        return self._wire.family == socket.AF_UNIX

    def send(self, message: Message, payload: Bytes, timeout_s: float, tag: int = 0) -> None:
        frames_sent.inc()
        head = encode(message, len(payload), tag)
        if self._gives is not None and len(payload) > frame_ahead_bytes:
            if not self._gives.give(payload, timeout_s):
                raise PeerTimeout(f"{self.peer} took nothing for {timeout_s:g} s")
            payload = b""
        try:
            self._limit(socket.SO_SNDTIMEO, timeout_s)
            self._send_all(self._sealed(head, payload), time.monotonic() + timeout_s)
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} took nothing for {timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def send_file(self, message: Message, file: DiskFile, offset: int, length: int, timeout_s: float) -> None:
        """Send a frame whose payload is part of a file. Raises OSError if the disk fails."""
        frames_sent.inc()
        head = memoryview(encode(message, length))
        deadline_s = time.monotonic() + timeout_s
        try:
            self._limit(socket.SO_SNDTIMEO, timeout_s)
            if self._sealer is not None:
                self._send_file_sealed(self._sealer, head, file, offset, length, timeout_s)
                return
            tls = self._socket if isinstance(self._socket, TlsSocket) else None
            if tls is None:
                self._send_rest(head[self._wire.send(head, socket.MSG_MORE) :], deadline_s)
            while length:
                # The kernel's timeout applies to every few pages; a call that ends early has used it up.
                deadline_s = time.monotonic() + timeout_s
                if tls is None:
                    sent = os.sendfile(self._wire.fileno(), file.descriptor, offset, length)
                else:
                    sent = tls.send_file(head, file.descriptor, offset, length)
                    head = head[:0]
                if not sent:
                    raise OSError(errno.EIO, "the file has become shorter")
                offset, length = offset + sent, length - sent
                if length and time.monotonic() >= deadline_s:
                    raise PeerTimeout(f"{self.peer} takes what it is sent too slowly")
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} took nothing for {timeout_s:g} s") from None
        except OSError as error:
            if not isinstance(error, ConnectionError | TimeoutError) and error.errno not in _FAULTS_OF_A_PEER:
                raise
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def _send_file_sealed(
        self, sealer: Sealer, head: memoryview, file: DiskFile, offset: int, length: int, timeout_s: float
    ) -> None:
        """Send a file over a sealed connection, one record at a time, since each must be read to be sealed."""
        self._send_all(sealer.seal(head), time.monotonic() + timeout_s)
        buffer = memoryview(bytearray(min(length, sealed_record_bytes_max)))
        while length:
            data = buffer[:length]
            if os.preadv(file.descriptor, [data], offset) < len(data):
                raise OSError(errno.EIO, "the file has become shorter")
            self._send_all(sealer.seal(b"", data), time.monotonic() + timeout_s)
            offset, length = offset + len(data), length - len(data)

    def send_descriptor(self, message: Message, file: DiskFile, timeout_s: float) -> None:
        """Send a frame over a local socket together with the open file.

        Raises OSError if the file cannot be reopened, BadRequest if this is not a local socket.
        """
        if not self.is_local:
            raise BadRequest("open files can be shared only over local sockets")
        head = memoryview(b"".join(self._sealed(encode(message, 0))))
        with file_for_reading(file.descriptor) as descriptor:
            frames_sent.inc()
            try:
                self._limit(socket.SO_SNDTIMEO, timeout_s)
                sent = send_with_file(self._wire, head, descriptor)
                self._send_rest(head[sent:], time.monotonic() + timeout_s)
            except BlockingIOError:
                raise PeerTimeout(f"{self.peer} took nothing for {timeout_s:g} s") from None
            except OSError as error:
                raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def _sealed(self, head: bytes, payload: Bytes = b"") -> Sequence[Bytes]:
        if self._sealer is not None:
            return self._sealer.seal(head, payload)
        return (head, payload) if len(payload) else (head,)

    def _send_all(self, buffers: Sequence[Bytes], deadline_s: float) -> None:
        sent = self._socket.sendmsg(buffers) if len(buffers) > 1 else self._socket.send(buffers[0])
        for buffer in buffers:
            if sent < len(buffer):
                self._send_rest(memoryview(buffer)[sent:], deadline_s)
            sent = max(0, sent - len(buffer))

    def _send_rest(self, view: memoryview, deadline_s: float) -> None:
        while len(view):
            # A call that sends less than all has used up the socket's timeout.
            if time.monotonic() >= deadline_s:
                raise PeerTimeout(f"{self.peer} takes what it is sent too slowly")
            view = view[self._socket.send(view) :]

    def send_now(self, message: Message, payload: Bytes) -> memoryview:
        """Send without waiting; return the unsent rest, which must go to `send_rest_now` before anything else."""
        assert self._gives is None or len(payload) <= frame_ahead_bytes, (
            "who sends so much has a thread of its own"
        )
        frames_sent.inc()
        return self._send_sealed_now(self._sealed(encode(message, len(payload)), payload))

    def _send_sealed_now(self, buffers: Sequence[Bytes]) -> memoryview:
        """Send sealed data without waiting; return the unsent rest as it goes over the wire."""
        if isinstance(self._socket, TlsSocket):
            buffers = (self._socket.seal(buffers),)
        sent = self._send_without_waiting(buffers)
        return memoryview(b"".join(buffers))[sent:] if sent < sum(map(len, buffers)) else _NOTHING

    def send_frames(self, frames: Sequence[Frame], timeout_s: float) -> None:
        """Send small frames together."""
        self.send_rest(self.send_frames_now(frames), timeout_s)

    def send_frames_now(self, frames: Sequence[Frame]) -> memoryview:
        """Send small frames together, without waiting; the unsent rest must go to `send_rest`."""
        frames_sent.inc(len(frames))
        parts: list[Bytes] = []
        for message, payload, tag, _unread in frames:
            parts += (encode(message, len(payload), tag), payload)
        return self._send_sealed_now(self._sealed(b"".join(parts)))

    def send_rest(self, rest: memoryview, timeout_s: float) -> None:
        """Send the rest that `send_frames_now` returned, which is sealed and encrypted already."""
        if not rest:
            return
        deadline_s = time.monotonic() + timeout_s
        try:
            self._limit(socket.SO_SNDTIMEO, timeout_s)
            while rest:
                rest = rest[self._wire.send(rest) :]
                if rest and time.monotonic() >= deadline_s:
                    raise PeerTimeout(f"{self.peer} takes what it is sent too slowly")
        except BlockingIOError:
            raise PeerTimeout(f"{self.peer} took nothing for {timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def send_rest_now(self, rest: memoryview) -> memoryview:
        return rest[self._send_without_waiting((rest,)) :]

    def _send_without_waiting(self, buffers: Sequence[Bytes]) -> int:
        try:
            return self._wire.sendmsg(buffers, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}") from None

    def _limit(self, option: int, timeout_s: float) -> None:
        # Skip the system call if the timeout hardly differs; most differ only by the duration of the last step.
        if abs(self._timeouts_s[option] - timeout_s) > timeout_s * _TIMEOUT_TOLERANCE:
            # The kernel takes zero as no limit.
            seconds, microseconds = divmod(max(int(timeout_s * 1_000_000), 1), 1_000_000)
            self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(seconds, microseconds))
            self._timeouts_s[option] = timeout_s

    def gives_to(self, payloads: InProcessPayloads) -> None:
        self._gives = payloads
