"""A relay before a member of etcd that records its clients' data, and can cut their connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_PIECE_BYTES = 65536


class Relay:
    """Relays connections. If `loses_answer` returns True for a piece of an answer, the connection ends there."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.loses_answer: Callable[[bytes], bool] = lambda piece: False
        self.connections = 0
        self.cuts = 0
        #: The first bytes of each connection, and all bytes from clients.
        self.begun: list[bytes] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for work in (self._take, self._give):
                    self._threads.append(threading.Thread(target=work, args=(client, server)))
                    self._threads[-1].start()

    def _take(self, client: socket.socket, server: socket.socket) -> None:
        is_first = True
        with suppress(OSError):
            while piece := client.recv(_PIECE_BYTES):
                if is_first:
                    self.begun.append(piece[:16])
                    is_first = False
                server.sendall(piece)
        _end(client, server)

    def _give(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(_PIECE_BYTES):
                if self.loses_answer(piece):
                    self.cuts += 1
                    break
                client.sendall(piece)
        _end(client, server)

    def close(self) -> None:
        _end(self._listening)
        self._listening.close()
        self._threads[0].join()
        _end(*self._open)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(target: str) -> Iterator[Relay]:
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
