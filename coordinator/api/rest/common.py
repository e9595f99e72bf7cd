"""Bodies and callers, which all REST routes share.

With authentication, the credential determines the user; a parameter `user` must be the same, unless the caller is
an administrator. Without authentication `user` is believed, as in WebHDFS.
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
    """The base of JSON bodies. Refuses text with lone surrogates, which JSON can express but UTF-8 cannot.

    Types are strict (no text for a number, no 1 for true), as in bodies that are messages of the framed protocol.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, told: Any) -> Any:
        if isinstance(told, dict) and not all(map(_is_text, told.values())):
            raise ValueError("text that is no Unicode")
        return told


def _is_text(value: Any) -> bool:
    """Return False for a string with lone surrogates, and for a list that contains one."""
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


#: The user of a request without a body.
User = Annotated[str, Depends(_user)]


def viewers(callers: Callers) -> Any:
    """Return the dependency for the viewer: the user, and whether he may see other users' things."""

    def viewer(request: Request, user: User) -> Viewer:
        sees_all = caller_of(request.scope) is None or callers.of(user).is_superuser
        return Viewer(user, sees_all)

    return Depends(viewer)


def named_user(request: Request, user: str) -> str:
    """Return the user of a request whose body names `user`. Raises AccessDenied."""
    return user_of(request.scope, user)


def superusers_only(callers: Callers) -> Any:
    """Return a dependency for routes that change the cluster or reveal the names of all files.

    It requires a superuser; with authentication, an administrator's token or the local socket.
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
