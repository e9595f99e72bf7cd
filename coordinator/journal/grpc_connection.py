"""A gRPC connection to a member of etcd, one call at a time. The library h2 does HTTP/2."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from typing import Final, NoReturn
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from peacefs.protocol.limits import MIB, tcp_keepalive_idle_s

# Seconds for a member to accept a connection, and for each piece of an answer. Then the next member is asked.
journal_connect_timeout_s: Final = 0.5
journal_call_timeout_s: Final = 2.0
# A standby that catches up reads at most 256 entries of 1 MiB in one answer.
journal_answer_bytes_max: Final = 512 * MIB

#: The prefix of a message: a compression flag, and the number of bytes that follow.
_MESSAGE = struct.Struct(">BI")
_PIECE_BYTES = 64 * 1024
#: h2's error for each frame after a GOAWAY.
_CLOSED = str(ConnectionState.CLOSED)
_STATUS_OK = b"0"
#: Skip h2's checks of headers, which take a quarter of a call: ours are few and valid, and only one header of an
#: answer is used.
_CONFIGURATION = H2Configuration(
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)


class BrokenExchange(ConnectionError):
    """The connection closed before the answer was complete, or the member does not speak gRPC."""


class GrpcRefusal(Exception):
    """The member answered the call with an error. The text is the member's own."""


class GrpcConnection:
    """A connection that can be reused while `is_open`. Not thread-safe.

    A call fails if neither it nor its answer has made progress for `journal_call_timeout_s`.
    """

    def __init__(self, endpoint: str, context: ssl.SSLContext | None) -> None:
        """Connect to `host:port`, over TLS with a `context` that offers `h2`. Raises OSError."""
        self._socket = _connect(endpoint, context)
        self._scheme, self._authority = "http" if context is None else "https", endpoint
        self._http = H2Connection(_CONFIGURATION)
        # These bytes are sent with the first call.
        self._http.initiate_connection()
        self._is_new = self.is_open = True

    def call(self, path: str, message: bytes, token: str = "") -> bytes:
        """Send a message and return the answer.

        Raises GrpcRefusal, and OSError, after which the connection cannot be used again.
        """
        try:
            return self._call(path, message, token)
        except ProtocolError as error:
            if _CLOSED in str(error):
                self._break("the member closes its connections")
            self._break(f"no HTTP/2 is spoken there, as gRPC needs: {error}")

    def _call(self, path: str, message: bytes, token: str) -> bytes:
        http, stream = self._http, self._http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", path),
            (":authority", self._authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        http.send_headers(stream, [*headers, ("token", token)] if token else headers)
        answer = _Answer(stream)
        unsent = memoryview(_MESSAGE.pack(0, len(message)) + message)
        while unsent and not answer.has_ended:
            room = min(http.local_flow_control_window(stream), http.max_outbound_frame_size, len(unsent))
            if room > 0:
                http.send_data(stream, bytes(unsent[:room]), end_stream=room == len(unsent))
                unsent = unsent[room:]
                # The member takes the call, so it is alive.
                answer.progressed_s = time.monotonic()
            else:
                self._exchange(answer)
        while not answer.has_ended:
            self._exchange(answer)
        if unsent:
            # The member refused the call early, so the connection has an unfinished request.
            self.is_open = False
        return answer.message()

    def _exchange(self, answer: _Answer) -> None:
        """Send the queued bytes, and receive the next piece of the answer."""
        if time.monotonic() - answer.progressed_s >= journal_call_timeout_s:
            # The member sends bytes, but not the answer.
            raise TimeoutError("timed out")
        self._socket.sendall(self._http.data_to_send())
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            self._break("the connection was closed before the answer was whole")
        if self._is_new and piece.startswith(b"HTTP/1"):
            # h2 would take these bytes for the beginning of a long frame.
            raise ProtocolError("the answer is of HTTP/1")
        self._is_new = False
        for event in self._http.receive_data(piece):
            if isinstance(event, DataReceived):
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if isinstance(event, ConnectionTerminated):
                self.is_open = False
            answer.take(event)

    def _break(self, why: str) -> NoReturn:
        self.is_open = False
        raise BrokenExchange(why)

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class _Answer:
    """The parts of an answer, as they arrive."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._data = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self.progressed_s = time.monotonic()
        self.has_ended = False

    def take(self, event: Event) -> None:
        if getattr(event, "stream_id", None) != self._stream:
            return
        if isinstance(event, DataReceived):
            self._data += event.data
            if len(self._data) > journal_answer_bytes_max:
                raise BrokenExchange(f"an answer is longer than {journal_answer_bytes_max} bytes")
        elif isinstance(event, ResponseReceived | TrailersReceived):
            self._headers.update(event.headers)
        elif isinstance(event, StreamEnded | StreamReset):
            self.has_ended = True
        self.progressed_s = time.monotonic()

    def message(self) -> bytes:
        """Return the one message of the answer. Raises GrpcRefusal, BrokenExchange."""
        status = self._headers.get(b"grpc-status")
        if status is None:
            said = self._headers.get(b":status", b"no status").decode(errors="replace")
            raise BrokenExchange(f"the call ended without a gRPC status (HTTP status {said})")
        if status != _STATUS_OK:
            said = unquote(self._headers.get(b"grpc-message", b"").decode(errors="replace"))
            raise GrpcRefusal(said or f"gRPC status {status.decode(errors='replace')}")
        head, message = self._data[: _MESSAGE.size], bytes(self._data[_MESSAGE.size :])
        if head != _MESSAGE.pack(0, len(message)):
            raise BrokenExchange("an answer is not exactly one message")
        return message


def _connect(endpoint: str, context: ssl.SSLContext | None) -> socket.socket:
    """Connect to `host:port`, over TLS with a `context`. Raises OSError."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    connection = socket.create_connection((host, int(port)), journal_connect_timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Use keepalive: an idle cluster appends nothing for hours, and firewalls drop idle connections.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, tcp_keepalive_idle_s)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=host)
        connection.settimeout(journal_call_timeout_s)
        return connection
    except BaseException:
        connection.close()
        raise
