"""The parameters that all WebHDFS operations have in common: path and caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from peacefs.protocol.asgi import Scope
from peacefs.protocol.callers.caller import Via, caller_of, effective_user_of

from .query import RequestQuery


@dataclass(frozen=True, slots=True)
class Request:
    """Base of all requests.

    `request_id` (parameter `requestid`) is sent only by our own client; it makes changes idempotent.
    """

    path: str
    user: str
    request_id: str = field(default="", kw_only=True)


#: Makes the request of an operation from its path, user and parameters.
Reader = Callable[[str, str, RequestQuery], Request]


def plain(kind: type[Request]) -> Reader:
    """Return a reader for an operation without parameters."""
    return lambda path, user, _query: kind(path, user)


def asker(scope: Scope, query: RequestQuery) -> str:
    """Return the user as whom to run a request. Raises AccessDenied, BadRequest.

    The credential determines an authenticated caller; `user.name`, which Hadoop's client always sends, is ignored.
    An administrator may act for another user with `doas`, and on the local socket also with `user.name`. Proxy
    users were already checked; their effective user is in the scope.
    """
    if (effective := effective_user_of(scope)) is not None:
        return effective
    caller = caller_of(scope)
    if caller is None:
        return query.user()
    other = query.text("doas")
    if other is None and caller.via is Via.LOCAL_SOCKET:
        other = query.text("user.name")
    return caller.acting_as(other)
