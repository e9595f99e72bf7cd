"""Send views of the cluster to browsers, as server-sent events. Does no work without viewers.

A view is computed periodically, once for all its viewers, and sent if it has changed. A slow viewer misses the
events in between, so no queue grows for him. A stream ends after a minute. The page then reconnects by itself, and
the viewer's rights are checked again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

import msgspec
from starlette.responses import Response

from peacefs.protocol.asgi import Receive, Scope, Send
from peacefs.protocol.errors import Overloaded, PeacefsError, remote_exception
from peacefs.service.client_shares import Shares

# How often a view with viewers is computed.
live_interval_s: Final = 1.0
# How often a comment line shows the browser that an unchanged stream is alive.
live_keep_alive_s: Final = 10.0
# Then the viewer must connect again, and his rights are checked (decision 29).
live_stream_s_max: Final = 60.0
live_viewers_max: Final = 256
live_viewers_per_client_max: Final = 64


log = logging.getLogger("peacefs.coordinator")

#: Computes a view as JSON.
Look = Callable[[], Awaitable[bytes]]
_KEEP_ALIVE = b": nothing is new\n\n"
_AGAIN = b"event: again\ndata: {}\n\n"
_HEADERS = {"cache-control": "no-store"}


class LiveFeed:
    """All viewers of a coordinator. The route `/v1/live` creates streams. Used from one event loop only.

    Viewers with the same key share a channel, which exists, and computes its view, only while it has viewers.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = live_interval_s,
        keep_alive_s: float = live_keep_alive_s,
        stream_s_max: float = live_stream_s_max,
        viewers_max: int = live_viewers_max,
        per_client_max: int = live_viewers_per_client_max,
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._keep_alive_s = keep_alive_s
        self._stream_s_max = stream_s_max
        self._viewers_max = viewers_max
        self._per_client_max = per_client_max
        self._shares = Shares(viewers_max, per_client_max)
        self._channels: dict[Hashable, _Channel] = {}
        self._is_stopped = False
        #: The number of computed views, which does not grow while there are no viewers.
        self.looks_total = 0

    @property
    def viewers(self) -> int:
        """The number of open streams."""
        return self._shares.total

    def stop(self) -> None:
        """End all streams, because the coordinator is about to end."""
        self._is_stopped = True
        for channel in self._channels.values():
            channel.wake()

    def stream(self, key: Hashable, look: Look, client: str, opening: bytes) -> EventStream:
        """Return the response to a viewer, which begins with `opening`. Viewers with the same key share a view.

        Raises Overloaded.
        """
        if self._shares.of(client) >= self._per_client_max or self.viewers >= self._viewers_max:
            raise Overloaded(f"{self.viewers} pages are open already, {self._shares.of(client)} of them yours")
        return EventStream(self, key, look, client, opening)

    async def send_events(
        self, key: Hashable, look: Look, client: str, opening: bytes, receive: Receive, send: Send
    ) -> None:
        """Send events until the viewer is gone, the time is over, or the view is refused."""
        if not self._shares.take(client):
            return
        channel = self._joined(key, look)
        woken = asyncio.Event()
        channel.viewers.add(woken)
        leaving = asyncio.create_task(_until_gone(receive, woken))
        try:
            await send({"type": "http.response.body", "body": opening, "more_body": True})
            ends_s, seen = self._clock() + self._stream_s_max, 0
            while not (leaving.done() or self._is_stopped or channel.is_over or self._clock() >= ends_s):
                woken.clear()
                if channel.number == seen and not await _within(woken, self._keep_alive_s):
                    await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
                if channel.number != seen:
                    seen = channel.number
                    await send({"type": "http.response.body", "body": channel.event, "more_body": True})
            if not leaving.done() and not channel.is_over:
                await send({"type": "http.response.body", "body": _AGAIN, "more_body": True})
        finally:
            leaving.cancel()
            channel.viewers.discard(woken)
            if not channel.viewers and self._channels.get(key) is channel:
                del self._channels[key]
                channel.close()
            self._shares.give_back(client)

    def _joined(self, key: Hashable, look: Look) -> _Channel:
        channel = self._channels.get(key)
        if channel is None or channel.is_over:
            channel = self._channels[key] = _Channel()
            channel.start(self._keep_looking(channel, look))
        return channel

    async def _keep_looking(self, channel: _Channel, look: Look) -> None:
        shown = b""
        while not channel.is_over:
            self.looks_total += 1
            try:
                now = await look()
            except PeacefsError as refusal:
                channel.end(b"refused", msgspec.json.encode(remote_exception(refusal)))
                return
            except Exception:
                log.exception("a view of the web page cannot be made")
                hidden = PeacefsError("an internal error of the coordinator; its log says more")
                channel.end(b"refused", msgspec.json.encode(remote_exception(hidden)))
                return
            if now != shown:
                shown = now
                channel.show(b"view", now)
            await asyncio.sleep(self._interval_s)


class _Channel:
    """The latest event of one view, and the asyncio events that wake its viewers."""

    def __init__(self) -> None:
        self.viewers: set[asyncio.Event] = set()
        self.event = b""
        #: Rises with each event.
        self.number = 0
        self.is_over = False
        self._task: asyncio.Task[None] | None = None

    def start(self, looking: Awaitable[None]) -> None:
        self._task = asyncio.ensure_future(looking)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def show(self, name: bytes, data: bytes) -> None:
        self.event = b"event: " + name + b"\ndata: " + data + b"\n\n"
        self.number += 1
        self.wake()

    def end(self, name: bytes, data: bytes) -> None:
        self.show(name, data)
        self.is_over = True

    def wake(self) -> None:
        for woken in self.viewers:
            woken.set()


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, feed: LiveFeed, key: Hashable, look: Look, client: str, opening: bytes) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._feed = feed
        self._key = key
        self._look = look
        self._client = client
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._feed.send_events(self._key, self._look, self._client, self._opening, receive, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, woken: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    woken.set()


async def _within(woken: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(woken.wait(), seconds)
    except TimeoutError:
        return False
    return True
