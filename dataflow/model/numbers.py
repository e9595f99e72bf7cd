"""Check numbers from the user, with one-line errors."""

from __future__ import annotations

from typing import Any

from peacefs.protocol.errors import InvalidQuery


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Return True if a value is a number, and not a bool. `whole`: accept integers only."""
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)


def check_count(what: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Raise InvalidQuery unless a value is an integer from `least` to `most`. The message begins with `what`."""
    if not is_number(value, whole=True) or value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise InvalidQuery(f"{what}: it must be a whole number, {allowed}")


def check_amount(what: str, value: Any, *, most: float) -> None:
    """Raise InvalidQuery unless a value is a number above 0 and at most `most`. The message begins with `what`."""
    if not is_number(value) or not 0 < value <= most:
        raise InvalidQuery(f"{what}: it must be above 0 and at most {most:g}")
