"""The caller of a request, once it has been authenticated, and whom it may act for."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.values.account_names import check_account_name

#: The key of the caller in ASGI scopes. Without it names are trusted: Hadoop's simple authentication.
CALLER: Final = "peacefs.caller"
#: The key of the user for whom a proxy user acts, in scopes, once that was decided.
EFFECTIVE_USER: Final = "peacefs.effective-user"


class Via(StrEnum):
    """The way in which a caller authenticated."""

    SIMPLE = "simple"
    BEARER = "bearer"
    DELEGATION = "delegation"
    LOCAL_SOCKET = "local-socket"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `token_id` names the token for logs; it is no secret."""

    user: str
    via: Via
    is_administrator: bool = False
    token_id: str = ""

    def acting_as(self, named: str | None) -> str:
        """Return in whose name this is done, which is the caller's own unless an administrator names another.

        Raises AccessDenied.
        """
        if not named or named == self.user:
            return self.user
        if not self.is_administrator:
            raise AccessDenied(f"the token is {self.user}'s, who may not act as {named}: leave the name away")
        check_account_name("user", named)
        return named


def caller_of(scope: MutableMapping[str, Any]) -> Caller | None:
    """Return the authenticated caller of a request; None where names are believed."""
    caller: Caller | None = scope.get(CALLER)
    return caller


def effective_user_of(scope: MutableMapping[str, Any]) -> str | None:
    """Return for whom a proxy user asks; None where nobody acts for another."""
    user: str | None = scope.get(EFFECTIVE_USER)
    return user


def user_of(scope: MutableMapping[str, Any], named: str) -> str:
    """Return in whose name a request is to be carried out that names a user. Raises AccessDenied."""
    caller = caller_of(scope)
    return named if caller is None else caller.acting_as(named)
