"""Credentials in HTTP requests: `Authorization: Bearer ...`, or `delegation=...` on WebHDFS. Pure."""

from __future__ import annotations

from peacefs.protocol.asgi import Scope, header
from peacefs.protocol.callers.caller import Via
from peacefs.protocol.errors import Unauthenticated
from peacefs.protocol.webhdfs.query import RequestQuery, is_webhdfs

_SCHEME = "bearer "


def presented(scope: Scope) -> tuple[Via, str]:
    """Return the credential of a request; a bearer token has priority over a delegation token.

    Raises Unauthenticated if there is none, BadRequest for a malformed query.
    """
    authorization = header(scope, b"authorization")
    if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
        return Via.BEARER, authorization[len(_SCHEME) :].strip()
    if is_webhdfs(scope) and (token := delegation_of(scope)) is not None:
        return Via.DELEGATION, token
    raise no_token("request")


def no_token(what: str) -> Unauthenticated:
    """Return the error for a request or connection without a token."""
    return Unauthenticated(
        f"no token came with the {what}, and this cluster asks who you are: give one with --token-file, "
        "PEACEFS_TOKEN_FILE or PEACEFS_TOKEN; an administrator makes it with `peacefs token create`"
    )


def delegation_of(scope: Scope) -> str | None:
    """Return the delegation token in a query, if any. Raises BadRequest."""
    if b"delegation" not in scope["query_string"].lower():
        return None
    return RequestQuery(scope["query_string"]).text("delegation")
