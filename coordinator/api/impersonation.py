"""`doas`: an ASGI layer that lets proxy users act for others. It puts the effective user into the scope.

The layer is between authentication and WebHDFS. Without rules it refuses every `doas`.
"""

from __future__ import annotations

from peacefs.coordinator.authentication.proxy_users import ProxyUsers
from peacefs.protocol.asgi import App, Receive, Scope, Send, client_host
from peacefs.protocol.callers.caller import EFFECTIVE_USER, Via, caller_of
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer
from peacefs.protocol.webhdfs.query import RequestQuery, is_webhdfs


class Impersonation:
    """The ASGI layer. Used from one event loop only."""

    def __init__(self, app: App, proxy_users: ProxyUsers) -> None:
        self._app = app
        self._proxy_users = proxy_users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A percent-encoded parameter name is not found here, but is refused when the user is read.
        if scope["type"] == "http" and b"doas" in scope["query_string"].lower() and is_webhdfs(scope):
            try:
                self._look(scope)
            except PeacefsError as refusal:
                await send_answer(scope, send, fault_answer(refusal, scope))
                return
        await self._app(scope, receive, send)

    def _look(self, scope: Scope) -> None:
        """Set the effective user of a request. Raises ImpersonationRefused, BadRequest."""
        query = RequestQuery(scope["query_string"])
        effective = query.text("doas")
        caller = caller_of(scope)
        if effective is None or (caller is not None and (caller.is_administrator or caller.user == effective)):
            return
        if caller is not None and caller.via is Via.DELEGATION:
            # The effective user of a delegation token was decided when it was issued.
            return
        real = caller.user if caller is not None else query.named_user()
        self._proxy_users.authorize(real, effective, client_host(scope))
        scope[EFFECTIVE_USER] = effective
