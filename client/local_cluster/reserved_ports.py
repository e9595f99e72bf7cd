"""Ports that stay one cluster's while the services behind them are started, killed and started again."""

from __future__ import annotations

import socket


class ReservedPorts:
    """Take free ports of `host`; the kernel gives them to nobody else until `release`. Not thread-safe.

    Without this a port that a service has left goes to whoever asks for a free one, or to an outgoing
    connection. A socket that is bound and does not listen keeps both away, while a service that is told the port,
    and sets SO_REUSEADDR as servers do, can listen on it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._holding: list[socket.socket] = []

    def take(self) -> int:
        """Return a port that nobody else has. Raises OSError where there is none."""
        held = socket.socket()
        self._holding.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((self._host, 0))
        port: int = held.getsockname()[1]
        return port

    def release(self) -> None:
        """Keep the ports no longer. May be called twice."""
        while self._holding:
            self._holding.pop().close()
