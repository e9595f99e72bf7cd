"""Types and helpers for our ASGI applications, which use no framework."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header with this name, which must be lower-case; None if there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def client_host(scope: Scope) -> str | None:
    """Return the client's IP address, or None if the server does not know it."""
    client = scope.get("client")
    return str(client[0]) if client else None


@contextlib.asynccontextmanager
async def client_watch(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """Return a task that is done when the client has disconnected, which `send` does not report.

    The task consumes the request body, so use it only for requests whose body is not needed.
    """
    watch = asyncio.create_task(_until_disconnected(receive))
    try:
        yield watch
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
