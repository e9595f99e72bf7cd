"""The parameters that all operations of WebHDFS have in common: a path, and the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from peacefs.protocol.asgi import Scope
from peacefs.protocol.callers.caller import Via, caller_of, effective_user_of

from .query import RequestQuery


@dataclass(frozen=True, slots=True)
class Request:
    """Base of all: of which path, and who asks.

    `request_id` is our own client's, given as `requestid`: a change that is asked again under it is done once.
    """

    path: str
    user: str
    request_id: str = field(default="", kw_only=True)


#: Makes the request of an operation from its path, who asks, and its parameters.
Reader = Callable[[str, str, RequestQuery], Request]


def plain(kind: type[Request]) -> Reader:
    """Read an operation without parameters."""
    return lambda path, user, _query: kind(path, user)


def asker(scope: Scope, query: RequestQuery) -> str:
    """Return in whose name a request is to be carried out. Raises AccessDenied, BadRequest.

    An authenticated caller is who its credential says: Hadoop's client sends the name of its machine's user, too,
    which is passed over. An administrator may act for another with `doas`, as on the local socket by a mere name;
    others as the rules for proxy users allow it, which were looked at before.
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
