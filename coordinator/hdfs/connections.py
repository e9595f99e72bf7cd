"""What all connections of clients of HDFS share: what they call, and their limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from peacefs.coordinator.audit_log import AuditLog
from peacefs.coordinator.authentication.proxy_users import ProxyUsers
from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.limits import http_requests_in_flight_max
from peacefs.protocol.errors import Overloaded, PeacefsError
from peacefs.protocol.limits import begun_frames_bytes_max
from peacefs.runtime.frame_budget import ConnectionCounts, FrameBudget

from .identification import Identification
from .method import Method, Served

connections_max: Final = 4096
connections_per_address_max: Final = 2048
# Connections that have not said yet who they are.
strangers_max: Final = 512
# The different headers of calls that are remembered: one for each method and protocol.
known_headers_max: Final = 1024


class Connected(Protocol):
    """A connection, as its limits see it."""

    @property
    def is_idle(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def refuse(self, error: PeacefsError, /) -> None: ...


class Connections:
    """All connections of one coordinator. Used from one event loop only."""

    def __init__(
        self,
        served: Served,
        proxy_users: ProxyUsers,
        door: Door | None = None,
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`door` lets calls through when this coordinator may answer; without one it always may."""
        self.served = served
        self.door = door
        self.audit = audit
        self.clock = clock
        self._proxy_users = proxy_users
        #: Methods by the bytes that name them in a call.
        self._methods: dict[bytes, tuple[str, Method]] = {}
        self.frames: FrameBudget[Connected] = FrameBudget(begun_frames_bytes_max)
        self.crowd: ConnectionCounts[str] = ConnectionCounts(connections_per_address_max)
        #: Those first that have been silent longest.
        self._open: dict[Connected, None] = {}
        self._strangers: dict[Connected, None] = {}
        self._waiting: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        for connection in list(self._open):
            connection.close()
        for task in list(self._waiting):
            task.cancel()

    def identification(self, host: str | None) -> Identification:
        return Identification(self.served.delegation, self._proxy_users, host)

    def opened(self, connection: Connected) -> None:
        """Register a connection. Over a limit, close the one that has been silent longest."""
        self._open[connection] = None
        self._strangers[connection] = None
        if len(self._strangers) > strangers_max:
            next(iter(self._strangers)).abort()
        if len(self._open) > connections_max:
            idle = next((each for each in self._open if each.is_idle), connection)
            idle.abort()

    def known(self, connection: Connected) -> None:
        """Note that a connection has said who it is."""
        self._strangers.pop(connection, None)

    def heard(self, connection: Connected) -> None:
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def closed(self, connection: Connected) -> None:
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)

    def waits(self, task: asyncio.Task[Any]) -> None:
        """Note a call that waits for something."""
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def method(self, raw: bytes) -> tuple[str, Method] | None:
        """Return the method that these bytes of a call named before."""
        return self._methods.get(raw)

    def remember_method(self, raw: bytes, name: str, method: Method) -> None:
        if len(self._methods) >= known_headers_max:
            self._methods.clear()
        self._methods[raw] = name, method

    def refuse_overload(self) -> None:
        """Raise Overloaded if too many calls are under way for another one to begin."""
        if len(self._waiting) >= http_requests_in_flight_max:
            raise Overloaded(f"{len(self._waiting)} calls are under way already; try again")
