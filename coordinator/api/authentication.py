"""Authenticate HTTP requests: an ASGI layer that refuses strangers and tells the layers below who is calling.

It stands below the limits on work and the guards against browsers, above WebHDFS and REST. Where names are
believed it is not there, and scopes bear no caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.callers.caller import CALLER, Caller, Via
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer
from peacefs.protocol.webhdfs.credentials import no_token, presented

from .rest.health import HEALTH_PATHS
from .rest.oauth import TOKEN_PATH
from .rest.web_page import PAGE_PREFIX

#: Open to whoever reaches the port: that this is a coordinator, counts and rates without names of users or paths,
#: whether it is well, and where tokens are fetched.
OPEN_PATHS = frozenset({"/", "/metrics", TOKEN_PATH, *HEALTH_PATHS})


def is_open(path: str) -> bool:
    """Return whether a path is for strangers: one of these, or a file of the web page, which holds no data."""
    return path in OPEN_PATHS or path.startswith(PAGE_PREFIX)


class Authenticator:
    """Turns credentials into callers. Used from one event loop only."""

    def __init__(
        self, verifier: Verifier, delegation: DelegationTokens, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._verifier = verifier
        self._delegation = delegation
        self._wall_clock = wall_clock

    def of_bearer(self, token: str) -> Caller:
        """Raises Unauthenticated."""
        return self._verifier.bearer(token, self._wall_clock()).caller

    def of_request(self, scope: Scope) -> Caller:
        """Raises Unauthenticated, BadRequest."""
        via, credential = presented(scope)
        return self.of_bearer(credential) if via is Via.BEARER else self._delegation.caller(credential)

    def of_client(self, credential: str) -> Caller:
        """Return who a client is that said this in its hello. Raises Unauthenticated."""
        if not credential:
            raise no_token("connection")
        return self.of_bearer(credential)


class Authentication:
    """Stands before another application."""

    def __init__(self, app: App, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if CALLER not in scope and not is_open(scope.get("path", "")):
            try:
                scope[CALLER] = self._authenticator.of_request(scope)
            except PeacefsError as refusal:
                await send_answer(scope, send, fault_answer(refusal, scope))
                return
        await self._app(scope, receive, send)


class LocalAdministration:
    """The application as it is served on the local socket, whose every caller is the service's own user."""

    def __init__(self, app: App, user: str) -> None:
        self._app = app
        self.caller = Caller(user, Via.LOCAL_SOCKET, is_administrator=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CALLER] = self.caller
        await self._app(scope, receive, send)
