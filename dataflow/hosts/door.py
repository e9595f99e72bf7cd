"""The port of a process of a dataflow. Its threads accept connections even while the event loop is busy."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from peacefs.protocol.errors import PeacefsError, PeerRefused
from peacefs.protocol.handshake import Peer
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.protected_stream import ProtectedStream

from .membership import LISTENS_ON, Membership

# Maximum number of connections whose handshake is not complete. Above that, the oldest is closed.
dataflow_strangers_max: Final = 256
dataflow_strangers_backlog: Final = 32
# How long to wait after the system has refused to accept, and for the end of a handshake that was closed.
dataflow_accept_retry_s: Final = 0.1


log = logging.getLogger("peacefs.dataflow")


class Door:
    """Accepts connections, each on a thread of its own until its handshake is complete.

    `entered` is then called on that thread. A connection whose handshake fails or takes too long is closed without
    an answer. `Links` owns one.
    """

    def __init__(self, membership: Membership, entered: Callable[[Peer, ProtectedStream], None]) -> None:
        self._membership = membership
        self._entered = entered
        self._socket = socket.create_server((LISTENS_ON, 0), backlog=dataflow_strangers_backlog)
        host, port = self._socket.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._changed = threading.Condition()
        # Connections whose handshake is not complete, oldest first.
        self._strangers: dict[SocketConnection, None] = {}
        self._closed = False
        self._warned = False
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for stranger in self._strangers:
                stranger.shut_down()
        # This also wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                # The port is closed, or the process has too many open files.
                time.sleep(dataflow_accept_retry_s)
                continue
            connection = SocketConnection(accepted, "a process of a dataflow")
            with self._changed:
                if len(self._strangers) >= dataflow_strangers_max:
                    self._make_room()
                self._strangers[connection] = None
            threading.Thread(target=self._greet, args=(connection,), name="greeting", daemon=True).start()

    def _make_room(self) -> None:
        oldest = next(iter(self._strangers))
        oldest.shut_down()
        self._changed.wait_for(lambda: oldest not in self._strangers, dataflow_accept_retry_s)
        self._strangers.pop(oldest, None)

    def _greet(self, connection: SocketConnection) -> None:
        try:
            peer = self._membership.accept(connection)
            stream = connection.hand_over()
        except Exception as fault:  # whatever a stranger's bytes cause
            connection.close()
            self._warn(fault)
        else:
            self._entered(peer, stream)
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                self._changed.notify_all()

    def _warn(self, fault: Exception) -> None:
        """Log only the first refusal, so that someone who connects endlessly cannot fill the log."""
        if not self._warned and not self._closed:
            self._warned = True
            reason = fault.message if isinstance(fault, PeacefsError) else repr(fault)
            if isinstance(fault, PeerRefused):
                reason = "it is not from a process of this query to this one"
            log.warning("a connection to %s is refused, as others like it will be: %s", self.address, reason)
