"""Limit how many HTTP requests the coordinator works on at once; later ones are told to come again.

A connection more than `http_connections_max` is closed without a word; so many requests are far fewer, and each of
them gets an answer that clients repeat after. One client, be it as busy as it likes, leaves some to others. What
tells how the coordinator fares is always let in.
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
#: Streams last for as long as somebody looks, which tells nothing of how fast requests are.
_STREAMS = "/v1/live/"


class Admission:
    """Stands before another application. Used from one event loop only."""

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
        """Return how many requests are under way, not counting those that ask how the coordinator fares."""
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
                request_seconds.labels(operation, of_status(status)).observe(seconds)
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("%s %r: %s after %.1f ms", operation, scope.get("path"), status, seconds * 1000)
