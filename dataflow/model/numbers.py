"""Numbers that a user gives, refused in one line where nothing can be done with them."""

from __future__ import annotations

from typing import Any

from peacefs.protocol.errors import InvalidQuery


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Return whether a value is a number that says how many or how much. True and False are not."""
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)


def check_count(what: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Raise InvalidQuery, which begins with `what`, unless a value is a whole number between two others."""
    if not is_number(value, whole=True) or value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise InvalidQuery(f"{what}: it has to be a whole number, {allowed}")


def check_amount(what: str, value: Any, *, most: float) -> None:
    """Raise InvalidQuery, which begins with `what`, unless a value is a number above 0 and at most `most`."""
    if not is_number(value) or not 0 < value <= most:
        raise InvalidQuery(f"{what}: it has to be above 0 and at most {most:g}")
