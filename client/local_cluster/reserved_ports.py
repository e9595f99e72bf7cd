"""Ports that stay reserved for one cluster while its services are started, killed and restarted."""

from __future__ import annotations

import socket


class ReservedPorts:
    """Takes free ports of `host`, which the kernel gives to no one else until `release`. Not thread-safe.

    Otherwise the port of a stopped service could go to another process that asks for a free port, or to an
    outgoing connection. A bound socket that does not listen prevents both. A service that is given the port and
    sets SO_REUSEADDR, as servers do, can still listen on it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._holding: list[socket.socket] = []

    def take(self) -> int:
        """Reserve and return a free port. Raises OSError if there is none."""
        held = socket.socket()
        self._holding.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((self._host, 0))
        port: int = held.getsockname()[1]
        return port

    def take_or_any(self, port: int) -> int:
        """Reserve this port, or a free one if another process has it. Return the port."""
        held = socket.socket()
        self._holding.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((self._host, port))
        except OSError:
            return self.take()
        return port

    def release(self) -> None:
        """Release all ports. May be called twice."""
        while self._holding:
            self._holding.pop().close()
