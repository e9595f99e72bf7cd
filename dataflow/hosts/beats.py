"""Beats of a node, sent by a separate thread while the node is busy with one batch for seconds.

A user's function may need longer for a batch than a node may be silent. Without these beats the node would be
considered dead, and then each node that begins the same batch after it. The beats stop when the process stops, or
when the node has been busy for so long that it must be considered hung.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from peacefs.dataflow.limits import dataflow_busy_s_max

from .greeting import greet


class Beats:
    """A thread that repeatedly sends one message to everyone who must know that the node is alive."""

    def __init__(
        self,
        name: str,
        token: str,
        encode: Callable[[Any], Sequence[bytes | memoryview]],
        message: object,
        *,
        every_s: float,
        busy_s_max: float = dataflow_busy_s_max,
    ) -> None:
        self._name, self._token = name, token
        self._beat = b"".join(encode(message))
        self._every_s, self._busy_s_max = every_s, busy_s_max
        self._round_s = time.monotonic()
        self._addresses: frozenset[str] = frozenset()
        self._connections: dict[str, socket.socket] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def note(self, addresses: Collection[str]) -> None:
        """Note that the event loop has run, and which addresses must know that the node is alive."""
        self._round_s = time.monotonic()
        self._addresses = frozenset(addresses)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    # -- on the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            wanted = self._addresses
            for address in self._connections.keys() - wanted:
                self._connections.pop(address).close()
            if time.monotonic() - self._round_s < self._busy_s_max:
                for address in wanted:
                    self._send(address)
        for connection in self._connections.values():
            connection.close()

    def _send(self, address: str) -> None:
        # An address that does not answer is tried again with the next beat. Its loss is detected elsewhere.
        with contextlib.suppress(OSError):
            connection = self._connections.pop(address, None) or self._connect(address)
            try:
                connection.sendall(self._beat)
            except OSError:
                connection.close()
                raise
            self._connections[address] = connection

    def _connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=self._every_s)
        connection.sendall(greet(self._name, self._token, address, beats=True))
        return connection
