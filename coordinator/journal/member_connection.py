"""One connection to a member of etcd: a request goes out in one piece, and llhttp reads its answer.

Each commit waits for an append, and what an append computes the event loop of the leader waits for; so it is no
more than has to be. A connection is used by one call at a time.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpResponseParser

from peacefs.protocol.limits import tcp_keepalive_idle_s

# The journal: a call to one member of etcd is given up after so long, and the next member asked.
journal_connect_timeout_s: Final = 0.5
journal_call_timeout_s: Final = 2.0


_PIECE_BYTES = 256 * 1024


class BrokenExchange(ConnectionError):
    """A member has closed the connection before its answer was whole, or speaks something else than HTTP."""


class MemberAnswer(NamedTuple):
    """A member's answer."""

    status: int
    content: bytes


class MemberConnection:
    """Kept for as long as `is_open`. Every answer has to come within `journal_call_timeout_s`."""

    def __init__(self, endpoint: str, context: ssl.SSLContext | None) -> None:
        """Connect to `host:port`, over TLS with a `context`. Raises OSError."""
        self._endpoint = endpoint
        self.is_open = True
        self._socket = connect(endpoint, context)

    def post(self, path: str, content: bytes, headers: Mapping[str, str]) -> MemberAnswer:
        """Raises OSError; the connection is of no more use then."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._endpoint}", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "\r\n"]).encode("latin-1") + content)
        answer = _Answering()
        parser = answer.parser
        while not answer.is_whole:
            piece = self._socket.recv(_PIECE_BYTES)
            if not piece:
                raise BrokenExchange("the connection was closed before the answer was whole")
            try:
                parser.feed_data(piece)
            except HttpParserError as error:
                raise BrokenExchange(f"this is no HTTP: {error}") from None
        self.is_open = answer.keeps_connection
        return MemberAnswer(parser.get_status_code(), b"".join(answer.pieces))

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class _Answering:
    """The parts of an answer, as the parser finds them."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.pieces: list[bytes] = []
        self.is_whole = False
        self.keeps_connection = False

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_whole = True
        # Later the parser would speak of the answer after this one.
        self.keeps_connection = self.parser.should_keep_alive()


def connect(endpoint: str, context: ssl.SSLContext | None) -> socket.socket:
    """Connect to `host:port`, over TLS with a `context`. Raises OSError."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    connection = socket.create_connection((host, int(port)), journal_connect_timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An idle cluster appends nothing for hours: what is on the way there is not to forget the connection.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, tcp_keepalive_idle_s)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=host)
        connection.settimeout(journal_call_timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection
