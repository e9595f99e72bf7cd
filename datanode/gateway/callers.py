"""Authenticate a gateway's callers: the bearer of a token must be the user whom the signed URL names.

A URL alone is then of no use to whoever has seen it in a log. Credentials are verified with public keys that the
coordinator has told over its authenticated connection; nothing is asked of anybody.
"""

from __future__ import annotations

from collections.abc import Callable

from peacefs.protocol.asgi import Scope
from peacefs.protocol.callers.caller import CALLER, Caller, Via
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.tokens import ProxyPass, Signer
from peacefs.protocol.webhdfs.credentials import presented
from peacefs.protocol.webhdfs.query import RequestQuery


class CallerCheck:
    """Used from the event loop of the gateway; `verifier` is told of keys from elsewhere."""

    def __init__(self, verifier: Verifier, signer: Signer, wall_clock: Callable[[], float]) -> None:
        self._verifier = verifier
        self._signer = signer
        self._wall_clock = wall_clock

    def check_bearer(self, scope: Scope, token_user: str, token: str) -> None:
        """Raises Unauthenticated, and AccessDenied for a token that was given to another than the caller.

        A proxy user that was given one in the name of another shows the pass for it that the coordinator signed.

        Raises ServiceUnready while the coordinator has not been heard. Where names are believed it checks nothing.
        """
        if not self._verifier.is_required:
            return
        via, credential = presented(scope)
        verify = self._verifier.bearer if via is Via.BEARER else self._verifier.delegation
        scope[CALLER] = caller = verify(credential, self._wall_clock()).caller
        if caller.user != token_user and not caller.is_administrator and not self._has_pass(scope, caller, token):
            raise AccessDenied(f"this URL was given to {token_user}, not to {caller.user}: ask the coordinator")

    def _has_pass(self, scope: Scope, caller: Caller, token: str) -> bool:
        """Raises AccessDenied for a pass that is none of this cluster's, or is over."""
        shown = RequestQuery(scope["query_string"]).text("proxypass")
        if shown is None or caller.via is Via.DELEGATION:
            return False
        return self._signer.verify(shown, ProxyPass, self._wall_clock()).is_for(caller.user, token)
