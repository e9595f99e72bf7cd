"""The outcomes of requests, as metrics tell them apart: done, refused for what was asked, or failed here."""

from __future__ import annotations

from typing import Final

from peacefs.protocol.errors import BY_CODE

DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"
#: The asker went away before there was an answer.
UNANSWERED: Final = "unanswered"


def of_status(status: int | None) -> str:
    """Return the outcome of an HTTP request by the status of its answer; None if there was none."""
    if status is None:
        return UNANSWERED
    return DONE if status < 400 else REFUSED if status < 500 else FAILED


def of_failure(code: str) -> str:
    """Return the outcome of a call in frames by the code of its failure."""
    kind = BY_CODE.get(code)
    return FAILED if kind is None else of_status(kind.http_status)
