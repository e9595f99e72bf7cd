"""How many HTTP requests the coordinator works on at once; whoever comes then is told to come again.

A connection more than `http_connections_max` is closed without a word; so many requests are far fewer, and each of
them gets an answer that clients repeat after. What tells how the coordinator fares is always let in.
"""

from __future__ import annotations

import time

from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.errors import Overloaded
from peacefs.protocol.limits import http_requests_in_flight_max
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer

from .request_metrics import operation_of, request_seconds

_ALWAYS = ("/metrics", "/v1/status")


class Admission:
    """Stands before another application. Used from one event loop only."""

    def __init__(self, app: App, *, in_flight_max: int = http_requests_in_flight_max) -> None:
        self._app = app
        self._in_flight_max = in_flight_max
        self.in_flight = 0
        self.refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.in_flight >= self._in_flight_max and scope.get("path") not in _ALWAYS:
            self.refused += 1
            refusal = Overloaded(f"{self.in_flight} requests are under way already; try again")
            await send_answer(scope, send, fault_answer(refusal, scope))
            return
        self.in_flight += 1
        began_s = time.perf_counter()
        try:
            await self._app(scope, receive, send)
        finally:
            self.in_flight -= 1
            request_seconds.labels(operation_of(scope)).observe(time.perf_counter() - began_s)
