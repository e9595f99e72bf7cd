"""A listener outside the cluster, which shows tests whether anything connected."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from peacefs.protocol.messages import Hop


class Stranger:
    """Accepts connections and sends nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def hop(self, node: str) -> Hop:
        """Return the listener's address, as pipelines and layouts name it."""
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
        """Return how many connections have arrived. A connection that the client saw refused counts, too."""
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
