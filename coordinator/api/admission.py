"""Limit the concurrent HTTP requests in the coordinator. Requests over the limit are asked to try again.

The limit is far below `http_connections_max`, over which connections are closed without an answer. A refused
request gets an answer after which clients retry. No client can use the whole limit. Requests for health, status
and metrics are always admitted.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from peacefs.coordinator.limits import http_requests_in_flight_max
from peacefs.protocol.asgi import App, Message, Receive, Scope, Send, client_host
from peacefs.protocol.errors import Overloaded
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer
from peacefs.runtime.tracing import spanning
from peacefs.service.client_shares import Shares, client_of
from peacefs.service.outcomes import of_status

from .request_metrics import operation_of, request_seconds
from .rest.health import HEALTH_PATHS

http_requests_in_flight_per_client_max: Final = 2048


log = logging.getLogger("peacefs.coordinator")
_ALWAYS = ("/metrics", "/v1/status", *HEALTH_PATHS)
#: Streams last as long as a viewer watches, so their duration is not recorded.
_STREAMS = "/v1/live/"


class Admission:
    """An ASGI layer. Used from one event loop only."""

    def __init__(
        self,
        app: App,
        *,
        in_flight_max: int = http_requests_in_flight_max,
        per_client_max: int = http_requests_in_flight_per_client_max,
    ) -> None:
        self._app = app
        self._shares = Shares(in_flight_max, per_client_max)
        self.refused = 0

    @property
    def in_flight(self) -> int:
        """The number of running requests, except those that are always admitted."""
        return self._shares.total

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = client_of(client_host(scope))
        is_counted = scope.get("path") not in _ALWAYS
        if is_counted and not self._shares.take(client):
            self.refused += 1
            own = self._shares.of(client)
            refusal = Overloaded(
                f"{self.in_flight} requests are under way already, {own} of them yours; try again"
            )
            await send_answer(scope, send, fault_answer(refusal, scope))
            return
        began_s = time.perf_counter()
        operation = operation_of(scope)
        status: int | None = None

        async def send_noted(event: Message) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            with spanning(operation):
                await self._app(scope, receive, send_noted)
        finally:
            if is_counted:
                self._shares.give_back(client)
            if not scope.get("path", "").startswith(_STREAMS):
                seconds = time.perf_counter() - began_s
                request_seconds.of(operation, of_status(status)).observe(seconds)
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("%s %r: %s after %.1f ms", operation, scope.get("path"), status, seconds * 1000)
