"""Check the intervals of techniques."""

from __future__ import annotations

from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol.errors import InvalidQuery


def checked_interval(technique: str, interval_s: float, *, longest_s: float, name: str = "interval_s") -> float:
    """Return an interval. Raises InvalidQuery unless it is a number above 0 and at most `longest_s`."""
    if not is_number(interval_s) or not 0 < interval_s <= longest_s:
        raise InvalidQuery(
            f"{technique}({name}={interval_s!r}): it must be above 0 and at most {longest_s:g} seconds"
        )
    return interval_s
