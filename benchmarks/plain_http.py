"""A minimal HTTP client, so that clients leave the cores to what is measured."""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

_BUFFER_BYTES = 1 << 20
#: Services close connections that are idle for this long.
_FRESH_S = 5.0


class Answered(NamedTuple):
    """The needed parts of an answer: its Location, which may be empty, and its body's length."""

    location: str
    body_bytes: int


class PlainHttp:
    """One kept connection to `netloc`."""

    def __init__(self, netloc: str, context: ssl.SSLContext | None = None) -> None:
        """Use TLS if a `context` is given."""
        self._netloc = netloc
        self._context = context
        self._socket = self._connect()
        self._used_s = time.monotonic()

    def _connect(self) -> socket.socket:
        host, _, port = self._netloc.rpartition(":")
        connected = socket.create_connection((host, int(port)), timeout=60.0)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            connected = self._context.wrap_socket(connected, server_hostname=host)
        return connected

    def _refresh(self) -> None:
        """Reconnect if the connection was idle for long."""
        now_s = time.monotonic()
        if now_s - self._used_s > _FRESH_S:
            self._socket.close()
            self._socket = self._connect()
        self._used_s = now_s

    def ask(
        self, method: str, url: str, status: int, token: str = "", *, body: bytes = b"", header: str = ""
    ) -> Answered:
        """Send a request and read its answer, which must have that status.

        A bearer token or one more header can be added.
        """
        self._refresh()
        shown = f"authorization: Bearer {token}\r\n" if token else f"{header}\r\n" if header else ""
        self._socket.sendall(self._head(method, url, len(body), shown) + body)
        return self._answer(status)

    def send_pieces(self, method: str, url: str, status: int, piece: bytes, count: int) -> Answered:
        """Send a request whose body repeats one piece."""
        self._refresh()
        self._socket.sendall(self._head(method, url, len(piece) * count, ""))
        for _ in range(count):
            self._socket.sendall(piece)
        return self._answer(status)

    def _head(self, method: str, url: str, length: int, shown: str) -> bytes:
        return (
            f"{method} {url} HTTP/1.1\r\nhost: {self._netloc}\r\ncontent-length: {length}\r\n{shown}\r\n".encode()
        )

    def _answer(self, status: int) -> Answered:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        lines = received[:end].decode("latin-1").split("\r\n")
        assert int(lines[0].split()[1]) == status, (lines[0], received[end:])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        body_bytes = len(received) - end - 4
        if "chunked" in headers.get("transfer-encoding", ""):
            return Answered(headers.get("location", ""), self._take_chunks(received[end + 4 :]))
        length = int(headers.get("content-length", "0"))
        if body_bytes < length:
            self._drop(length - body_bytes)
        return Answered(headers.get("location", ""), length)

    def _drop(self, missing: int) -> None:
        buffer = memoryview(bytearray(min(missing, _BUFFER_BYTES)))
        while missing:
            count = self._socket.recv_into(buffer[:missing])
            assert count, "the server closed the connection"
            missing -= count

    def _take_chunks(self, received: bytes) -> int:
        """Read a chunked body; return its number of bytes."""
        total = 0
        while True:
            while (end := received.find(b"\r\n")) < 0:
                received += self._receive()
            length = int(received[:end].split(b";")[0], 16)
            total, received = total + length, received[end + 2 :]
            while len(received) < length + 2:
                received += self._receive()
            received = received[length + 2 :]
            if length == 0:
                return total

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        assert data, "the server closed the connection"
        return data

    def close(self) -> None:
        self._socket.close()
