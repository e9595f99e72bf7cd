"""Intervals of techniques, refused where a technique cannot work with them."""

from __future__ import annotations

from peacefs.protocol.errors import InvalidQuery


def checked_interval(technique: str, interval_s: float, *, longest_s: float) -> float:
    """Return an interval. Raises InvalidQuery unless it is above 0 and at most `longest_s`."""
    if not 0 < interval_s <= longest_s:
        raise InvalidQuery(
            f"{technique}(interval_s={interval_s}): it has to be above 0 and at most {longest_s:g} seconds"
        )
    return interval_s
