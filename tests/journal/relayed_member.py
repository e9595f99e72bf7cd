"""A relay before a member of etcd that sees how its clients speak to it, and may let them down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFACE = b"PRI * HTTP/2.0"
_PIECE_BYTES = 65536


class Relay:
    """Passes connections on. `grpc_is_cut` ends those of gRPC, `answers_are_lost` when they are answered."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.grpc_is_cut = False
        self.answers_are_lost = False
        #: All connections, those over which gRPC was begun, and transactions that were asked of the gateway.
        self.connections = 0
        self.grpc_connections = 0
        self.gateway_transactions = 0
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
                speaks_grpc = threading.Event()
                for work in (self._take, self._give):
                    self._threads.append(threading.Thread(target=work, args=(client, server, speaks_grpc)))
                    self._threads[-1].start()

    def _take(self, client: socket.socket, server: socket.socket, speaks_grpc: threading.Event) -> None:
        with suppress(OSError):
            while piece := client.recv(_PIECE_BYTES):
                if piece.startswith(_PREFACE):
                    self.grpc_connections += 1
                    speaks_grpc.set()
                self.gateway_transactions += piece.count(b"POST /v3/kv/txn")
                if speaks_grpc.is_set() and self.grpc_is_cut:
                    break
                server.sendall(piece)
        _end(client, server)

    def _give(self, client: socket.socket, server: socket.socket, speaks_grpc: threading.Event) -> None:
        with suppress(OSError):
            while piece := server.recv(_PIECE_BYTES):
                if speaks_grpc.is_set() and self.answers_are_lost:
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
