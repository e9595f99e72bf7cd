"""The outcomes of requests that metrics distinguish."""

from __future__ import annotations

from typing import Final

from peacefs.protocol.errors import BY_CODE

DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"
#: The client disconnected before it got an answer.
UNANSWERED: Final = "unanswered"


def of_status(status: int | None) -> str:
    """Return the outcome of an HTTP request with this status; None means that it got no answer."""
    if status is None:
        return UNANSWERED
    return DONE if status < 400 else REFUSED if status < 500 else FAILED


def of_failure(code: str) -> str:
    """Return the outcome of a call over frames that failed with this error code."""
    kind = BY_CODE.get(code)
    return FAILED if kind is None else of_status(kind.http_status)
