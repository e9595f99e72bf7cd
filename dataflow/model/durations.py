"""Durations as users write them: "500ms", "60s", "5 minutes"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from peacefs.protocol.errors import InvalidQuery

Duration = str | timedelta

_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
}


def microseconds(duration: Duration, purpose: str, *, least: int = 1) -> int:
    """Convert `duration` to microseconds. Raises InvalidQuery, which names `purpose`, if it is not a duration."""
    if isinstance(duration, timedelta):
        us = duration // timedelta(microseconds=1)
    else:
        found = re.fullmatch(r"(\d+)\s*([a-z]+?)", duration.strip()) if isinstance(duration, str) else None
        unit = found and (_UNITS_US.get(found[2]) or _UNITS_US.get(found[2].removesuffix("s")))
        if not found or not unit:
            raise InvalidQuery(f"{purpose} is {duration!r}: write a duration as '500ms', '60s' or '5 minutes'")
        us = int(found[1]) * unit
    if us < least:
        raise InvalidQuery(f"{purpose} is {duration!r}: it must be longer")
    return us


def interval(bounds: Any, purpose: str) -> tuple[int, int]:
    """Convert two durations, which may begin with a minus sign, to microseconds. Raises InvalidQuery."""
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise InvalidQuery(f"{purpose} is {bounds!r}: two durations are wanted, as ('-5s', '10s')")
    lower, upper = (_signed(each, purpose) for each in bounds)
    return lower, upper


def _signed(duration: Duration, purpose: str) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, str) and duration.strip().startswith("-"):
        return -microseconds(duration.strip()[1:], purpose, least=0)
    return microseconds(duration, purpose, least=0)
