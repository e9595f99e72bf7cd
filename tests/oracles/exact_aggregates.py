"""Exact aggregates by Python's integers and fractions. Nulls are ignored; NaN is the highest number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Values = Sequence[Any]


def values_of(given: Values) -> list[Any]:
    return [value for value in given if value is not None]


def total(given: Values) -> int | None:
    """Return the exact sum of integers."""
    values = values_of(given)
    return sum(values) if values else None


def mean(given: Values) -> float | None:
    """Return the float64 nearest to the mean of integers."""
    values = values_of(given)
    return float(Fraction(sum(values), len(values))) if values else None


def lowest(given: Values) -> Any:
    return min(values_of(given), key=_place, default=None)


def highest(given: Values) -> Any:
    return max(values_of(given), key=_place, default=None)


def float_total(given: Values) -> tuple[float, float] | None:
    """Return the exact sum of floats, rounded, and the maximum error of additions in any order.

    With an infinity or NaN, return IEEE 754's result, which no order changes.
    """
    values = values_of(given)
    if not values:
        return None
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return sum(special), 0.0
    exact = sum(map(Fraction, values), Fraction(0))
    bound = Fraction(len(values), 2**52) * sum((abs(Fraction(value)) for value in values), Fraction(0))
    return float(exact), float(bound)


def key_of(value: Any) -> Any:
    """Map equal keys to one value: null is a key, all NaN are one key, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values have equal type and value. NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return type(one) is type(other) and bool(one == other)


def _place(value: Any) -> tuple[bool, Any]:
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value
