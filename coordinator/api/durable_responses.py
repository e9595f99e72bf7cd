"""Sends responses only after the metadata that they were made from is durable: an ASGI layer around the app."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer


class DurableResponses:
    """The ASGI layer. Replaces a response by an error if its metadata is refused. For one event loop."""

    def __init__(self, app: App, durable: DurableAnswers) -> None:
        self._app = app
        self._durable = durable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watched = self._durable.watched()
        is_refused = False

        async def send_when_durable(message: Any) -> None:
            nonlocal is_refused
            if is_refused:
                return
            try:
                await self._durable.settle(watched)
            except ServiceUnready as refusal:
                if message["type"] != "http.response.start":
                    raise
                is_refused = True
                await send_answer(scope, send, fault_answer(refusal, scope))
                return
            await send(message)

        answering = cast(Coroutine[Any, Any, None], self._app(scope, receive, send_when_durable))
        await watched.run(answering)
