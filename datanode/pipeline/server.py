"""The datanode's data server: does the handshake of each connection, then has a reactor run `DataRequests`."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from peacefs.protocol.errors import Overloaded, PeacefsError, PeerUnreachable
from peacefs.protocol.handshake import Peer
from peacefs.protocol.limits import begun_frames_bytes_max, last_word_timeout_s
from peacefs.protocol.messages import Failure
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_handshakes import accept_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.effects import Address
from peacefs.runtime.frame_budget import ConnectionCounts, FrameBudget
from peacefs.runtime.in_process_payloads import ServedHere
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsIdentity
from peacefs.runtime.tracing import is_tracing, observed

from .dispatch import DataRequests
from .listeners import DataListeners, accept_retry_s, data_connections_max

# Maximum number of clients' connections from one address. A machine with many tasks has some hundreds.
data_connections_per_address_max: Final = 768


log = logging.getLogger("peacefs.datanode")


class DataServer:
    """Serves the connections that its listeners accept, from `start` to `stop`. The service makes and stops it.

    Before `stop`, call the connection pool's `shut_down`, which wakes participants that wait for another datanode.
    """

    def __init__(
        self,
        listeners: DataListeners,
        driver: ThreadDriver,
        requests: DataRequests,
        *,
        served_here: ServedHere | None = None,
        connections_max: int = data_connections_max,
        per_address_max: int = data_connections_per_address_max,
        tls: TlsIdentity | None = None,
    ) -> None:
        """With `tls`, all connections use TLS except those of the local socket."""
        self._listeners = listeners
        self._me = listeners.me
        self._tls = tls
        self._requests = requests
        self._served_here = served_here or ServedHere()
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._serving: set[SocketConnection] = set()
        #: The memory for clients' unfinished frames, and the number of clients' connections from each host.
        self._frames: FrameBudget[SocketConnection] = FrameBudget(begun_frames_bytes_max)
        self._crowd: ConnectionCounts[str] = ConnectionCounts(per_address_max)
        self._host_of: dict[SocketConnection, str] = {}
        #: Connections whose handshake has not finished, oldest first.
        self._silent: dict[SocketConnection, None] = {}
        #: The number of this datanode's own participants that the reactor runs.
        self._begun = 0
        self._stopping = threading.Event()
        self._reactor = Reactor(driver, f"data-{self._me.name}", workers_max=connections_max)

    @property
    def address(self) -> Address:
        """The address of the data port."""
        return self._listeners.address

    def start(self) -> None:
        self._reactor.start()
        self._listeners.start(self._take)

    def hang_up(self) -> None:
        """Accept nothing more, and close all connections, so that writers blame this datanode."""
        self._stopping.set()
        self._listeners.close()
        with self._lock:
            for connection in self._serving:
                connection.shut_down()

    def stop(self) -> None:
        """Call `hang_up` if necessary, and return when the last request has ended."""
        if not self._stopping.is_set():
            self.hang_up()
        with self._lock:
            self._ended.wait_for(lambda: not self._serving and not self._begun)
        self._reactor.stop()

    def begin(self, steps: fx.Steps[None], ended: Callable[[Exception | None], None]) -> None:
        """Have the reactor run one of this datanode's own participants, which moves little; then call `ended`.

        Raises PeerUnreachable if the server is stopping.
        """
        with self._lock:
            if self._stopping.is_set():
                raise PeerUnreachable(f"{self._me.name} is stopping")
            self._begun += 1

        def over(fault: Exception | None) -> None:
            with self._lock:
                self._begun -= 1
                if self._stopping.is_set():
                    self._ended.notify_all()
            ended(fault)

        self._reactor.begin(steps, over)

    def _take(self, connection: SocketConnection) -> None:
        if not self._admit(connection):
            self._turn_away(connection)

    def _admit(self, connection: SocketConnection) -> bool:
        name = f"data-{self._me.name}-hello"
        thread = threading.Thread(target=self._greet, args=(connection,), name=name, daemon=True)
        with self._lock:
            if len(self._serving) >= self._connections_max:
                self._make_room()
            if self._stopping.is_set() or len(self._serving) >= self._connections_max:
                return False
            self._serving.add(connection)
            self._silent[connection] = None
        thread.start()
        return True

    def _make_room(self) -> None:
        """Close the connection whose handshake has taken longest, so that silent peers block no others."""
        longest = next(iter(self._silent), None)
        if longest is not None:
            del self._silent[longest]
            longest.shut_down()
            self._ended.wait_for(lambda: longest not in self._serving, accept_retry_s)

    def _turn_away(self, connection: SocketConnection) -> None:
        refusal = Overloaded(f"{self._me.name} has {self._connections_max} data connections, its limit")
        # A refusal in plain text would look like a service without TLS, and a handshake costs too much here.
        if self._tls is None or connection.is_local:
            with contextlib.suppress(PeacefsError):
                connection.send(Failure(refusal.code, refusal.message), b"", last_word_timeout_s)
        connection.close()

    def _greet(self, connection: SocketConnection) -> None:
        self._served_here.add(connection)
        try:
            peer = accept_connection(
                connection, self._me, self._frames, lambda peer: self._count(connection, peer), tls=self._tls
            )
            with self._lock:
                self._silent.pop(connection, None)
            connection.peer = peer.name
        except Exception as fault:
            self._over(connection, fault)
        else:
            requests = self._requests.serve_connection(connection)
            if is_tracing():
                requests = observed(requests)
            self._reactor.run(requests, lambda fault: self._over(connection, fault))

    def _count(self, connection: SocketConnection, peer: Peer) -> None:
        """Count a connection. Raises Overloaded if a client's host has too many."""
        if peer.trusted:
            return
        host = connection.ends[1][0] if connection.ends is not None else "this host"
        self._crowd.enter(host)
        with self._lock:
            self._host_of[connection] = host

    def _over(self, connection: SocketConnection, fault: Exception | None) -> None:
        if isinstance(fault, PeacefsError):
            log.debug("data connection from %s: %s", connection.peer, fault.message)
        elif fault is not None:
            log.error("a data connection ended because of a bug in this datanode", exc_info=fault)
        self._served_here.remove(connection)
        connection.close()
        with self._lock:
            self._silent.pop(connection, None)
            host = self._host_of.pop(connection, None)
            if host is not None:
                self._crowd.leave(host)
            self._serving.discard(connection)
            self._ended.notify_all()
