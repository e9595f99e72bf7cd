"""HTTP as cheap as Python has it, so that clients leave the cores to what is measured."""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple


class Answered(NamedTuple):
    """The part of an answer that is looked at: its Location, which may be empty, and its body's length."""

    location: str
    body_bytes: int


class PlainHttp:
    """One connection to `netloc`, kept open, for requests without a body."""

    def __init__(self, netloc: str, context: ssl.SSLContext | None = None) -> None:
        """With a `context` over TLS."""
        self._netloc = netloc
        host, _, port = netloc.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def ask(self, method: str, url: str, status: int, token: str = "") -> Answered:
        """Send a request, with a bearer token if there is one, and take its whole answer, of that status."""
        shown = f"authorization: Bearer {token}\r\n" if token else ""
        head = f"{method} {url} HTTP/1.1\r\nhost: {self._netloc}\r\ncontent-length: 0\r\n{shown}\r\n"
        self._socket.sendall(head.encode())
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        lines = received[:end].decode("latin-1").split("\r\n")
        assert int(lines[0].split()[1]) == status, (lines[0], received[end:])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        length = int(headers.get("content-length", "0"))
        missing = length - (len(received) - end - 4)
        while missing > 0:
            missing -= len(self._receive())
        return Answered(headers.get("location", ""), length)

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        assert data, "the server closed the connection"
        return data

    def close(self) -> None:
        self._socket.close()
