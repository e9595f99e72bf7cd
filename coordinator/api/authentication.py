"""Authenticate HTTP requests: an ASGI layer that refuses strangers and puts the caller into the scope.

The layer is below the limits and browser guards, and above WebHDFS and REST. A coordinator that believes user
names does not have it, so scopes have no caller.
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

#: Open without authentication: the greeting, metrics (which have no names of users or paths), health, and the
#: endpoint for tokens.
OPEN_PATHS = frozenset({"/", "/metrics", TOKEN_PATH, *HEALTH_PATHS})


def is_open(path: str) -> bool:
    """Return whether a path needs no authentication: one of `OPEN_PATHS`, or a file of the web page."""
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
        """Return the caller of a bearer token. Raises Unauthenticated."""
        return self._verifier.bearer(token, self._wall_clock()).caller

    def of_request(self, scope: Scope) -> Caller:
        """Return the caller of an HTTP request. Raises Unauthenticated, BadRequest."""
        via, credential = presented(scope)
        return self.of_bearer(credential) if via is Via.BEARER else self._delegation.caller(credential)

    def of_client(self, credential: str) -> Caller:
        """Return the caller of a framed connection, whose hello had `credential`. Raises Unauthenticated."""
        if not credential:
            raise no_token("connection")
        return self.of_bearer(credential)


class Authentication:
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
    """The layer for the local socket, where every caller counts as the service's own user."""

    def __init__(self, app: App, user: str) -> None:
        self._app = app
        self.caller = Caller(user, Via.LOCAL_SOCKET, is_administrator=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CALLER] = self.caller
        await self._app(scope, receive, send)
