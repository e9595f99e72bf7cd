"""Limits on the bodies of REST requests, applied before parsing: size, total size, and time to arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peacefs.protocol.limits import KIB, MIB
from peacefs.service.client_shares import Shares, client_of

# The time within which a body must arrive.
control_body_timeout_s: Final = 60.0
# Maximum size of one body, for routes without a limit of their own. Parsed JSON takes several times the memory.
rest_body_bytes_max: Final = 512 * KIB
# Maximum size of the bodies of all requests under way, and of those from one client.
rest_bodies_bytes_max: Final = 32 * MIB
rest_bodies_per_client_bytes_max: Final = 24 * MIB


class BodyLimit:
    """An ASGI layer that refuses bodies over the limits.

    A body over the limit of its path, or over `rest_body_bytes_max`, gets 400. A body for which there is no room
    besides others gets 503, so clients retry. A body not complete after `control_body_timeout_s` gets 408.
    """

    def __init__(self, app: ASGIApp, of_path: Mapping[str, int]) -> None:
        self._app = app
        self._of_path = of_path
        self._shares = Shares(rest_bodies_bytes_max, rest_bodies_per_client_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._of_path.get(scope.get("path", ""), rest_body_bytes_max)
        client = client_of(scope["client"][0] if scope.get("client") else None)
        received, is_whole, held = 0, False, 0
        deadline_s = asyncio.get_running_loop().time() + control_body_timeout_s

        async def bounded() -> Message:
            nonlocal received, is_whole, held
            try:
                # After the body, only the client's disconnect can arrive, which has no deadline.
                async with asyncio.timeout_at(None if is_whole else deadline_s):
                    message = await receive()
            except TimeoutError:
                # The framework passes an HTTPException on. It reports others as "an error parsing the body".
                raise HTTPException(408, f"the body did not arrive within {control_body_timeout_s:g} s") from None
            is_whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(400, f"a body of more than {limit} bytes is over the limit")
            if not self._shares.take(client, received - held):
                raise HTTPException(503, "the memory for request bodies is in use; try again")
            held = received
            return message

        try:
            await self._app(scope, bounded, send)
        finally:
            if held:
                self._shares.give_back(client, held)
