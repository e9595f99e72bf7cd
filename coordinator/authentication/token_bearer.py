"""Check that a caller uses only tokens that were signed for him, not another user's token that he has seen."""

from __future__ import annotations

from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.messages import Message
from peacefs.protocol.tokens import user_named_in


def check_bearer_of(message: Message, caller: Caller | None) -> None:
    """Raise AccessDenied for a message whose token names another user than its caller.

    The signature is checked where the token is used.
    """
    if caller is None or caller.is_administrator:
        return
    token = getattr(message, "token", None)
    user = user_named_in(token) if isinstance(token, str) else None
    if user is not None and user != caller.user:
        raise AccessDenied(f"this token was given to {user}, not to {caller.user}")
