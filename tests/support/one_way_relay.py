"""A relay before a TCP server that can block one direction, like a network that loses packets one way."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_PIECE_BYTES = 65536
_TICK_S = 0.05


class OneWayRelay:
    """Passes bytes between connections. While `drops` contains "to" or "from", bytes in that direction wait."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.drops: set[str] = set()
        self._is_open = True
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for one, other, way in ((client, server, "to"), (server, client, "from")):
                    self._threads.append(threading.Thread(target=self._pass, args=(one, other, way)))
                    self._threads[-1].start()

    def _pass(self, one: socket.socket, other: socket.socket, way: str) -> None:
        with suppress(OSError):
            while piece := one.recv(_PIECE_BYTES):
                while way in self.drops and self._is_open:
                    threading.Event().wait(_TICK_S)
                other.sendall(piece)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_open = False
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()
