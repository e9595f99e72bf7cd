"""A pool of idle connections for reuse, limited in number and age."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import idle_connection_timeout_s
from peacefs.runtime.tls import TlsIdentity

from . import effects as fx
from .connection_handshakes import open_connection
from .connections import SocketConnection
from .idle_reaper import IdleReaper
from .in_process_payloads import ServedHere

# The connecting side closes idle connections well before the other side does. Above the maximum number, the one
# that has been idle for longest is closed.
idle_connection_kept_s: Final = idle_connection_timeout_s / 2
idle_connections_max: Final = 256
# A connection that was used within this time is reused without checking whether the peer has closed it.
trusted_connection_s: Final = 1.0


#: The address of a connection, and the name of the expected peer.
_Place = tuple[fx.Address, str]


class ConnectionPool:
    """Opens connections for a driver and keeps them idle between requests, for reuse. Thread-safe.

    A connection is either idle here or used by one participant, which must `release` or `close` it.
    """

    def __init__(
        self,
        me: Identity,
        clock: Callable[[], float] = time.monotonic,
        *,
        served_here: ServedHere | None = None,
        idle_max: int = idle_connections_max,
        idle_s_max: float = idle_connection_kept_s,
        local_sockets: bool = True,
        credential: Callable[[], str] | None = None,
        tls: TlsIdentity | None = None,
    ) -> None:
        """Without `local_sockets`, peers on this host are reached only over TCP, like other peers.

        `credential` returns the credential for each new connection; used for connections to the coordinator.
        With `tls`, all TCP connections are encrypted.
        """
        self._me = me
        self._credential = credential
        self._tls = tls
        self._served_here = served_here
        self._clock = clock
        self._idle_max = idle_max
        self._idle_s_max = idle_s_max
        self._local_sockets = local_sockets
        self._lock = threading.Lock()
        #: Idle connections by address and name, oldest first. There are no empty queues.
        self._idle: dict[_Place, deque[SocketConnection]] = {}
        self._idle_count = 0
        self._place_of: dict[SocketConnection, _Place] = {}
        self._shut_down = False
        self._reaper = IdleReaper(self.reap, "idle connections", clock)

    @property
    def idle(self) -> int:
        return self._idle_count

    def kept(self, address: fx.Address, name: str) -> SocketConnection | None:
        """Take an idle connection to this peer, without waiting; None if there is none."""
        while (kept := self._take((address, name))) is not None:
            idle_s = self._clock() - kept.idle_since
            if idle_s < trusted_connection_s:
                return kept
            if idle_s < self._idle_s_max and not kept.has_been_closed():
                return kept
            self.close(kept)
        return None

    def connect(self, address: fx.Address, name: str, role: str = "datanode") -> SocketConnection:
        if (kept := self.kept(address, name)) is not None:
            return kept
        me = self._me if self._credential is None else replace(self._me, credential=self._credential())
        connection, _peer = open_connection(address, name, me, self._tls, role=role)
        if not self._local_sockets:
            connection.local_address = None
        if self._served_here is not None:
            self._served_here.join(connection)
        with self._lock:
            if not self._shut_down:
                self._place_of[connection] = address, name
                return connection
        connection.close()
        raise PeerUnreachable(f"cannot connect to {name}: {self._me.name} is stopping")

    def _take(self, place: _Place) -> SocketConnection | None:
        with self._lock:
            idle = self._idle.get(place)
            if not idle:
                return None
            connection = idle.pop()
            self._took(place, idle)
            return connection

    def _took(self, place: _Place, idle: deque[SocketConnection]) -> None:
        self._idle_count -= 1
        if not idle:
            del self._idle[place]

    def release(self, connection: SocketConnection) -> None:
        connection.idle_since = self._clock()
        surplus = None
        with self._lock:
            self._idle.setdefault(self._place_of[connection], deque()).append(connection)
            self._idle_count += 1
            if self._idle_count > self._idle_max:
                surplus = self._take_longest_idle()
        if surplus is not None:
            self.close(surplus)
        self._reaper.watch()

    def _take_longest_idle(self) -> SocketConnection:
        place = min(self._idle, key=lambda each: self._idle[each][0].idle_since)
        idle = self._idle[place]
        connection = idle.popleft()
        self._took(place, idle)
        return connection

    def reap(self, now_s: float) -> float | None:
        """Close connections that were idle for too long; return when the next one is due, if any."""
        overdue = []
        with self._lock:
            for place, idle in list(self._idle.items()):
                while idle and now_s - idle[0].idle_since >= self._idle_s_max:
                    overdue.append(idle.popleft())
                    self._took(place, idle)
            due_s = min((idle[0].idle_since for idle in self._idle.values()), default=None)
        for connection in overdue:
            self.close(connection)
        return None if due_s is None else due_s + self._idle_s_max

    def close(self, connection: SocketConnection) -> None:
        with self._lock:
            self._place_of.pop(connection, None)
        connection.close()

    def shut_down(self) -> None:
        """Open no more connections; interrupt participants that wait for a peer with PeerUnreachable."""
        with self._lock:
            self._shut_down = True
            opened = list(self._place_of)
        for connection in opened:
            connection.shut_down()

    def close_all(self) -> None:
        """Close all idle connections and keep none from now on. Users close the connections in use."""
        self._reaper.stop()
        with self._lock:
            self._idle_max = 0
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            self._idle_count = 0
        for connection in idle:
            self.close(connection)
