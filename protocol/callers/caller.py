"""The authenticated caller of a request, and the users for whom it may act."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.values.account_names import check_account_name

#: Key of the caller in ASGI scopes. If it is absent, user names are trusted: Hadoop's simple authentication.
CALLER: Final = "peacefs.caller"
#: Key in ASGI scopes of the user for whom a proxy user acts, after this was permitted.
EFFECTIVE_USER: Final = "peacefs.effective-user"


class Via(StrEnum):
    SIMPLE = "simple"
    BEARER = "bearer"
    DELEGATION = "delegation"
    LOCAL_SOCKET = "local-socket"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `token_id` identifies the token in logs; it is not secret."""

    user: str
    via: Via
    is_administrator: bool = False
    token_id: str = ""

    def acting_as(self, named: str | None) -> str:
        """Return the user as whom the request runs: the caller, or any user that an administrator names.

        Raises AccessDenied if a caller that is not an administrator names another user.
        """
        if not named or named == self.user:
            return self.user
        if not self.is_administrator:
            raise AccessDenied(f"the token is {self.user}'s, who may not act as {named}: leave the name away")
        check_account_name("user", named)
        return named


def caller_of(scope: MutableMapping[str, Any]) -> Caller | None:
    """Return the authenticated caller of a request, or None if user names are trusted."""
    caller: Caller | None = scope.get(CALLER)
    return caller


def effective_user_of(scope: MutableMapping[str, Any]) -> str | None:
    """Return the user for whom a proxy user makes this request, or None if no proxy user is involved."""
    user: str | None = scope.get(EFFECTIVE_USER)
    return user


def user_of(scope: MutableMapping[str, Any], named: str) -> str:
    """Return the user as whom to run a request that names the user `named`. Raises AccessDenied."""
    caller = caller_of(scope)
    return named if caller is None else caller.acting_as(named)
