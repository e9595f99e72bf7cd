"""Authenticates a gateway's callers: the caller must be the user whom the token in the signed URL names.

So a URL alone, seen in a log for example, is useless. Credentials are verified with public keys that the
coordinator sent over its authenticated connection; no further request is needed.
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
    """Checks callers on the gateway's event loop. `verifier` receives new keys from the coordinator's link."""

    def __init__(self, verifier: Verifier, signer: Signer, wall_clock: Callable[[], float]) -> None:
        self._verifier = verifier
        self._signer = signer
        self._wall_clock = wall_clock

    def check_bearer(self, scope: Scope, token_user: str, token: str) -> None:
        """Check that the caller is the token's user, or an administrator.

        A proxy user acting for another user must present the pass that the coordinator signed for this token.
        Raises Unauthenticated, AccessDenied, and ServiceUnready before the first message from the coordinator.
        Checks nothing with simple authentication.
        """
        if not self._verifier.is_required:
            return
        via, credential = presented(scope)
        verify = self._verifier.bearer if via is Via.BEARER else self._verifier.delegation
        scope[CALLER] = caller = verify(credential, self._wall_clock()).caller
        if caller.user != token_user and not caller.is_administrator and not self._has_pass(scope, caller, token):
            raise AccessDenied(f"this URL was given to {token_user}, not to {caller.user}: ask the coordinator")

    def _has_pass(self, scope: Scope, caller: Caller, token: str) -> bool:
        """Return whether the request has a pass for this token. Raises AccessDenied if it is forged or expired."""
        shown = RequestQuery(scope["query_string"]).text("proxypass")
        if shown is None or caller.via is Via.DELEGATION:
            return False
        return self._signer.verify(shown, ProxyPass, self._wall_clock()).is_for(caller.user, token)
