"""One connection to a member of etcd over which gRPC is spoken, a call at a time; h2 does HTTP/2."""

from __future__ import annotations

import ssl
import struct
from typing import NoReturn

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from .member_connection import BrokenExchange, connect

#: The head of a message: a flag for compressed ones, and the number of bytes that follow.
_MESSAGE = struct.Struct(">BI")
_PIECE_BYTES = 64 * 1024
_STATUS_OK = b"0"
#: Our headers are few and right, and of an answer's one is looked at: to check them all takes a quarter of a call.
_CONFIGURATION = H2Configuration(
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)


class GrpcConnection:
    """Kept for as long as `is_open`; every piece of an answer has to come within `journal_call_timeout_s`."""

    def __init__(self, endpoint: str, context: ssl.SSLContext | None) -> None:
        """Connect to `host:port`, over TLS with a `context` that offers `h2`. Raises OSError."""
        self._socket = connect(endpoint, context)
        self._scheme, self._authority = "http" if context is None else "https", endpoint
        self._http = H2Connection(_CONFIGURATION)
        # It goes out with the first call.
        self._http.initiate_connection()
        self.is_open = True

    def call(self, path: str, message: bytes, token: str = "") -> bytes | None:
        """Return the message that answers this one, or None for a refusal.

        Raises OSError; the connection is of no more use then.
        """
        try:
            return self._call(path, message, token)
        except ProtocolError as error:
            self._break(f"this is no HTTP/2: {error}")

    def _call(self, path: str, message: bytes, token: str) -> bytes | None:
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
            else:
                self._exchange(answer)
        while not answer.has_ended:
            self._exchange(answer)
        return answer.message()

    def _exchange(self, answer: _Answer) -> None:
        """Send what there is to send, and take a piece of what comes."""
        self._socket.sendall(self._http.data_to_send())
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            self._break("the connection was closed before the answer was whole")
        for event in self._http.receive_data(piece):
            if isinstance(event, DataReceived):
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if isinstance(event, ConnectionTerminated):
                # The peer still answers the calls that were begun.
                self.is_open = False
            answer.take(event)

    def _break(self, why: str) -> NoReturn:
        self.is_open = False
        raise BrokenExchange(why)

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class _Answer:
    """The parts of an answer, as they come."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._data = bytearray()
        self._status = b""
        self.has_ended = False

    def take(self, event: Event) -> None:
        if getattr(event, "stream_id", None) != self._stream:
            return
        if isinstance(event, DataReceived):
            self._data += event.data
        elif isinstance(event, TrailersReceived):
            self._status = dict(event.headers or ()).get(b"grpc-status", b"")
        elif isinstance(event, StreamEnded | StreamReset):
            self.has_ended = True

    def message(self) -> bytes | None:
        """Return the one message, or None for a refusal. Raises BrokenExchange."""
        if self._status != _STATUS_OK:
            return None
        head, message = self._data[: _MESSAGE.size], bytes(self._data[_MESSAGE.size :])
        if head != _MESSAGE.pack(0, len(message)):
            raise BrokenExchange("an answer is not the one message that was to come")
        return message
