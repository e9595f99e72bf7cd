"""A bound on the bodies of REST requests, before anybody parses them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peacefs.protocol.limits import control_body_bytes_max


class BodyLimit:
    """Refuses with status 400 what is longer than `control_body_bytes_max`, or than its path's own limit."""

    def __init__(self, app: ASGIApp, of_path: Mapping[str, int]) -> None:
        self._app = app
        self._of_path = of_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._of_path.get(scope.get("path", ""), control_body_bytes_max)
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                # The framework lets this one through; any other it calls "an error parsing the body".
                raise HTTPException(400, f"a body of more than {limit} bytes is over the limit")
            return message

        await self._app(scope, bounded, send)
