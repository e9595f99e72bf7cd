"""The state that all HDFS client connections share: the services that they call, and their limits."""

from __future__ import annotations

import asyncio
import logging
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
# The maximum number of connections whose user is not known yet.
strangers_max: Final = 512
# The size of the cache of call headers: one entry per method and protocol. Hadoop's clients write some 90 bytes.
known_headers_max: Final = 1024
known_header_bytes_max: Final = 256

log = logging.getLogger("peacefs.coordinator")


class Connected(Protocol):
    """A connection, with the methods that enforcing the limits needs."""

    @property
    def is_idle(self) -> bool: ...
    def answer(self) -> None: ...
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
        """`door` admits calls while this coordinator may answer; without it, all are admitted."""
        self.served = served
        self.door = door
        self.audit = audit
        self.clock = clock
        self._proxy_users = proxy_users
        #: Cache of methods by the bytes that name them in a call.
        self._methods: dict[bytes, tuple[str, Method]] = {}
        self.frames: FrameBudget[Connected] = FrameBudget(begun_frames_bytes_max)
        self.crowd: ConnectionCounts[str] = ConnectionCounts(connections_per_address_max)
        #: Ordered by last activity, longest idle first.
        self._open: dict[Connected, None] = {}
        self._strangers: dict[Connected, None] = {}
        self._waiting: set[asyncio.Task[Any]] = set()
        #: Connections with answers to send when the calls that have arrived are carried out.
        self._answering: list[Connected] = []

    def stop(self) -> None:
        for connection in list(self._open):
            connection.close()
        for task in list(self._waiting):
            task.cancel()

    def identification(self, host: str | None) -> Identification:
        return Identification(self.served.delegation, self._proxy_users, host)

    def opened(self, connection: Connected) -> None:
        """Register a connection.

        If too many have no user yet, close the oldest of these. If there are too many in all, close the one that
        has been idle longest, or the new one if none is idle.
        """
        self._open[connection] = None
        self._strangers[connection] = None
        if len(self._strangers) > strangers_max:
            next(iter(self._strangers)).abort()
        if len(self._open) > connections_max:
            idle = next((each for each in self._open if each.is_idle), connection)
            idle.abort()

    def known(self, connection: Connected) -> None:
        """Record that the user of a connection is known."""
        self._strangers.pop(connection, None)

    def heard(self, connection: Connected) -> None:
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def closed(self, connection: Connected) -> None:
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)

    def waits(self, task: asyncio.Task[Any]) -> None:
        """Count a call as under way until its task ends."""
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def answer_soon(self, connection: Connected) -> None:
        if not self._answering:
            asyncio.get_running_loop().call_soon(self._answer)
        self._answering.append(connection)

    def _answer(self) -> None:
        connections, self._answering = self._answering, []
        for connection in connections:
            try:
                connection.answer()
            except Exception:
                # Other connections have answers to send, too.
                log.exception("answers to a client of HDFS cannot be sent; its connection is closed")
                connection.abort()

    def method(self, raw: bytes) -> tuple[str, Method] | None:
        """Return the cached method for these header bytes of a call."""
        return self._methods.get(raw)

    def remember_method(self, raw: bytes, name: str, method: Method) -> None:
        """Remember a header, unless fields that nobody reads make it long."""
        if len(raw) > known_header_bytes_max:
            return
        if len(self._methods) >= known_headers_max:
            self._methods.clear()
        self._methods[raw] = name, method

    def refuse_overload(self) -> None:
        """Raise Overloaded if too many calls are under way."""
        if len(self._waiting) >= http_requests_in_flight_max:
            raise Overloaded(f"{len(self._waiting)} calls are under way already; try again")
