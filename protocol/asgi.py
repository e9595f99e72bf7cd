"""The few words of ASGI that our bare applications use. No framework: every answer stays in our hands."""

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
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def client_host(scope: Scope) -> str | None:
    """The address that the client connects from, where the server knows it."""
    client = scope.get("client")
    return str(client[0]) if client else None


@contextlib.asynccontextmanager
async def client_watch(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """A task that is done once the client has hung up: `send` swallows what nobody reads any more.

    It takes what there is of the request's body, so it is for requests whose body nobody wants.
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
