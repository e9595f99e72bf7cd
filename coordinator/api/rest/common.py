"""Bodies and callers: what all REST routes share.

Where callers are authenticated, the request's credential says who asks: a `user` that is named besides has to be
the same, unless an administrator asks. Elsewhere `user` is believed, as in WebHDFS.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, model_validator

from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.callers.caller import caller_of, user_of
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.webhdfs.query import NOBODY


class Body(BaseModel):
    """JSON can spell text that no UTF-8 expresses, halves of surrogate pairs: it is refused here for all.

    Text is no number and 1 is not true, as in the bodies that are messages of the framed protocol.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, told: Any) -> Any:
        if isinstance(told, dict) and not all(map(_is_text, told.values())):
            raise ValueError("text that is no Unicode")
        return told


def _is_text(value: Any) -> bool:
    """Return True for strings, and for lists of them."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    elif isinstance(value, list):
        return all(map(_is_text, value))
    return True


def _user(request: Request, user: str = NOBODY) -> str:
    caller = caller_of(request.scope)
    return user if caller is None else caller.acting_as(None if user == NOBODY else user)


#: In whose name a request without a body is carried out.
User = Annotated[str, Depends(_user)]


def viewers(callers: Callers) -> Any:
    """Return the dependency that says who looks, and whether he sees what is others'."""

    def viewer(request: Request, user: User) -> Viewer:
        sees_all = caller_of(request.scope) is None or callers.of(user).is_superuser
        return Viewer(user, sees_all)

    return Depends(viewer)


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
