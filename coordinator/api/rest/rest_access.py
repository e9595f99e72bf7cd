"""Who asks over REST, and who may administer the cluster.

Where callers are authenticated, who asks is known from the request's credential: a `user` that is named besides
has to be the same, unless an administrator asks. Elsewhere `user` is believed, as in WebHDFS.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.caller import caller_of, user_of
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.webhdfs.query import NOBODY


def _user(request: Request, user: str = NOBODY) -> str:
    caller = caller_of(request.scope)
    return user if caller is None else caller.acting_as(None if user == NOBODY else user)


#: In whose name a request without a body is carried out.
User = Annotated[str, Depends(_user)]


def named_user(request: Request, user: str) -> str:
    """Return in whose name a request is carried out whose body names a user. Raises AccessDenied."""
    return user_of(request.scope, user)


def superusers_only(callers: Callers) -> Any:
    """For the `dependencies` of a route that changes the cluster, or gives away what all files are called.

    Where callers are authenticated it asks for an administrator's token, or the local socket.
    """

    def check(request: Request, user: str = NOBODY) -> None:
        caller = caller_of(request.scope)
        if caller is None:
            callers.need_superuser(user)
        elif not caller.is_administrator:
            raise AccessDenied(
                f"Access denied for user {caller.user}. This asks for an administrator's token (`peacefs token "
                "create --administrator`) or the coordinator's local socket (-c unix:DIR)"
            )

    return Depends(check)
