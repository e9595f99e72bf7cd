"""Listens for clients of HDFS's data transfer protocol, and serves each on its own thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Final

from peacefs.protocol.errors import Overloaded, PeacefsError, PeerError, StartupError
from peacefs.protocol.limits import handshake_timeout_s
from peacefs.runtime.effects import Address
from peacefs.runtime.frame_budget import ConnectionCounts

from .block_operations import BlockOperations
from .heartbeats import Heartbeats
from .replica_questions import ReplicaQuestions
from .transfer_socket import TransferSocket

# HDFS: dfs.datanode.max.transfer.threads.
transfer_connections_max: Final = 1024
transfer_connections_per_address_max: Final = 768
accept_retry_s: Final = 0.1

log = logging.getLogger("peacefs.hdfs")


class TransferServer:
    """The port for both protocols of HDFS's datanodes, from `start` to `stop`. The service makes it.

    If there are too many connections, the oldest one without a request is closed to admit a new one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        operations: BlockOperations,
        heartbeats: Heartbeats,
        questions: ReplicaQuestions,
        *,
        connections_max: int = transfer_connections_max,
        per_address_max: int = transfer_connections_per_address_max,
    ) -> None:
        """Listen on a port, 0 for a free one. Raises StartupError."""
        self._operations = operations
        self._heartbeats = heartbeats
        self._questions = questions
        self._connections_max = connections_max
        self._crowd: ConnectionCounts[str] = ConnectionCounts(per_address_max)
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._serving: set[TransferSocket] = set()
        #: Connections that have not sent a complete request yet, oldest first.
        self._silent: dict[TransferSocket, None] = {}
        self._stopping = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=connections_max)
        except OSError as error:
            reason = error.strerror or error
            raise StartupError(f"cannot listen on {host}:{port} for clients of HDFS: {reason}") from None
        self.address: Address = self._listener.getsockname()[:2]
        self._acceptor = threading.Thread(target=self._accept, name="hdfs-acceptor", daemon=True)

    def start(self) -> None:
        self._heartbeats.start()
        self._acceptor.start()

    def hang_up(self, wait_s: float) -> None:
        """Stop accepting, and close all connections. Return when all have ended, or after `wait_s`."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            for connection in self._serving:
                connection.shut_down()
            self._ended.wait_for(lambda: not self._serving, wait_s)

    def stop(self) -> None:
        """Wait until the last request has ended. Call `hang_up` first."""
        with self._lock:
            while self._serving:
                self._ended.wait()
        self._heartbeats.stop()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                # For example because there are no free descriptors. Wait until other connections end.
                if not self._stopping.wait(accept_retry_s):
                    log.warning("cannot accept a client of HDFS: %s", error.strerror or error)
                continue
            self._take(sock, address[0], f"{address[0]}:{address[1]}")

    def _take(self, sock: socket.socket, host: str, peer: str) -> None:
        try:
            self._crowd.enter(host)
        except Overloaded as refusal:
            log.warning("refused a client of HDFS: %s", refusal.message)
            sock.close()
            return
        connection = TransferSocket(sock, peer)
        with self._lock:
            if len(self._serving) >= self._connections_max:
                self._make_room()
            if len(self._serving) >= self._connections_max or self._stopping.is_set():
                log.warning(
                    "refused a client of HDFS at %s: all %d connections are in use", peer, len(self._serving)
                )
                self._crowd.leave(host)
                connection.close()
                return
            self._serving.add(connection)
            self._silent[connection] = None
        thread = threading.Thread(target=self._serve, args=(connection, host), name=f"hdfs-{peer}", daemon=True)
        thread.start()

    def _make_room(self) -> None:
        """Close the oldest connection without a request."""
        longest = next(iter(self._silent), None)
        if longest is not None:
            del self._silent[longest]
            longest.shut_down()
            self._ended.wait_for(lambda: longest not in self._serving, accept_retry_s)

    def _serve(self, connection: TransferSocket, host: str) -> None:
        def requested() -> None:
            with self._lock:
                self._silent.pop(connection, None)

        try:
            if not connection.has_more(handshake_timeout_s):
                return
            if connection.begins_with(b"hrpc") or connection.begins_with(b"GET "):
                self._questions.serve(connection, requested)
            else:
                self._operations.serve(connection, requested)
            connection.close_politely()
        except PeerError as fault:
            log.debug("client of HDFS at %s: %s", connection.peer, fault.message)
        except PeacefsError as fault:
            log.warning("the connection of %s to the HDFS port ended: %s", connection.peer, fault.message)
            connection.close_politely()
        except Exception:
            log.exception("a connection of HDFS ended because of a bug in this datanode")
        finally:
            connection.close()
            self._crowd.leave(host)
            with self._lock:
                self._silent.pop(connection, None)
                self._serving.discard(connection)
                self._ended.notify_all()
