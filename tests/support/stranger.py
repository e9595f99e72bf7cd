"""Somebody who listens and belongs to no cluster; tests want to know whether anything has connected."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from peacefs.protocol.messages import Hop


class Stranger:
    """Takes connections and says nothing on them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def hop(self, node: str) -> Hop:
        """It, as what a pipeline or a layout names."""
        host, port = self._listener.getsockname()[:2]
        return Hop(node, host, port)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken = self._listener.accept()[0]
                with self._lock:
                    self._taken.append(taken)
                taken.close()

    @property
    def connections(self) -> int:
        """Return how many connections have come so far. One that was refused by it has been taken before."""
        with self._lock:
            return len(self._taken)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@contextlib.contextmanager
def listening() -> Iterator[Stranger]:
    stranger = Stranger()
    try:
        yield stranger
    finally:
        stranger.close()
