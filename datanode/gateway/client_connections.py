"""Connections of HTTP clients to a datanode: which ones close after their answer, and how all close at a stop.

HDFS's datanodes close each connection after its answer. Here connections are kept open, except those of Java:
HttpURLConnection sends a body over an idle connection without checking that it is still open, and never retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from peacefs.datanode.limits import gateway_cut_off_s, gateway_drain_s
from peacefs.protocol.asgi import App, Message, Receive, Scope, Send, header

stop_redirects_s: Final = 0.3
stop_redirects_in_use_s: Final = 1.0
gateway_in_use_s: Final = 60.0


_JAVA = "Java/"
_CLOSE = (b"connection", b"close")
_LOOK_S = 0.1


class ClientConnections:
    """An ASGI application around `inner` that decides when connections close."""

    def __init__(self, inner: App, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._clock = clock
        self._asked_s: float | None = None
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._asked_s = self._clock()

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _CLOSE]
            await send(message)

        is_last = self._is_stopping or (header(scope, b"user-agent") or "").startswith(_JAVA)
        await self._inner(scope, receive, send_last if is_last else send)

    def stopping(self) -> None:
        """From now on, close each connection after its answer."""
        self._is_stopping = True

    async def all_came(self, serving: asyncio.Task[None], is_led: Callable[[], bool]) -> None:
        """Wait for clients that were redirected here earlier. Return early if no coordinator leads."""
        now_s = self._clock()
        in_use = self._asked_s is not None and now_s - self._asked_s < gateway_in_use_s
        until_s = now_s + (stop_redirects_in_use_s if in_use else stop_redirects_s)
        while is_led() and self._clock() < until_s and not serving.done():
            await asyncio.wait({serving}, timeout=_LOOK_S)

    async def all_ended(self, serving: asyncio.Task[None], is_led: Callable[[], bool]) -> None:
        """Wait until `serving` ends with its last connection, or until the time limit for bodies.

        Return early if no coordinator leads, because then no file could be published.
        """
        now_s = led_s = self._clock()
        until_s = now_s + gateway_drain_s
        while not serving.done() and now_s < min(until_s, led_s + gateway_cut_off_s):
            await asyncio.wait({serving}, timeout=_LOOK_S)
            now_s = self._clock()
            if is_led():
                led_s = now_s
