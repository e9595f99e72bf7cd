"""What aggregates are, by Python's whole numbers and fractions. Nulls are no values; NaN is the highest number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Values = Sequence[Any]


def values_of(given: Values) -> list[Any]:
    return [value for value in given if value is not None]


def total(given: Values) -> int | None:
    """Return the sum of whole numbers, as wide as it is."""
    values = values_of(given)
    return sum(values) if values else None


def mean(given: Values) -> float | None:
    """Return the float64 that is nearest to the mean of whole numbers."""
    values = values_of(given)
    return float(Fraction(sum(values), len(values))) if values else None


def lowest(given: Values) -> Any:
    return min(values_of(given), key=_place, default=None)


def highest(given: Values) -> Any:
    return max(values_of(given), key=_place, default=None)


def float_total(given: Values) -> tuple[float, float] | None:
    """Return the exact sum of floating-point numbers, rounded, and how far additions in any order may be from it.

    With an infinity or NaN among them it is what IEEE 754 says of each order.
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
    """Return the same for keys that are equal: null is a key, all NaN are one key, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of one type, NaN as well."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return type(one) is type(other) and bool(one == other)


def _place(value: Any) -> tuple[bool, Any]:
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value
