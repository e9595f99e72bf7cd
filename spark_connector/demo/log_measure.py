"""Measure a log before a stream reads it: its years, its extent, its disorder.

The disorder is what a watermark has to tolerate: by how much a line's instant lies behind the latest instant
before it in order of arrival, at most.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from peacefs.protocol.errors import BadRequest

from .auth_log import YearAssumption, parse_line, traditional_day

_HALF_A_YEAR_DAYS = 183
# Two leap years are never further apart than this (1896 and 1904).
_LEAP_YEAR_DISTANCE = 8


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """The measures of one log. `first` and `last` are the earliest and latest instant, None if no line has one."""

    years: YearAssumption
    lines: int = 0
    stamped: int = 0
    failures: int = 0
    first: datetime | None = None
    last: datetime | None = None
    disorder_s: float = 0.0


def measure(lines: Iterable[str], years: YearAssumption) -> LogMeasure:
    """Read a log once, in order of arrival."""
    total = stamped = failures = 0
    first: datetime | None = None
    last: datetime | None = None
    disorder_s = 0.0
    for line in lines:
        total += 1
        parsed = parse_line(line, years)
        if parsed.at is None:
            continue
        stamped += 1
        failures += parsed.failures
        first = parsed.at if first is None else min(first, parsed.at)
        last = parsed.at if last is None else max(last, parsed.at)
        disorder_s = max(disorder_s, (last - parsed.at).total_seconds())
    return LogMeasure(years, total, stamped, failures, first, last, disorder_s)


def assume_years(lines: Iterable[str], not_after: date) -> YearAssumption:
    """The latest years in which the log's stamps without year exist and do not lie after `not_after`.

    A step of more than half a year back is taken for New Year's Eve, one forward for a late line of the old
    year. BadRequest if the stamps then cover a year or more: which year a line belongs to could not be told.
    """
    days = _days_by_turn(lines)
    if not days:
        return YearAssumption(not_after.year)
    opening, closing = min(days), max(days)
    if closing >= (opening[0] + 1, *opening[1:]):
        raise BadRequest(
            "the log covers a year or more and its stamps name no year: split it, or write RFC 3339 stamps"
        )
    leap_turns = {turn for turn, month, day in days if (month, day) == (2, 29)}
    year = not_after.year - opening[0]
    while (year + closing[0], *closing[1:]) > (not_after.year, not_after.month, not_after.day):
        year -= 1
    for _ in range(_LEAP_YEAR_DISTANCE):
        if all(calendar.isleap(year + turn) for turn in leap_turns):
            break
        year -= 1
    return YearAssumption(year + opening[0], opening[1], opening[2])


def _days_by_turn(lines: Iterable[str]) -> set[tuple[int, int, int]]:
    """The days (turn of the year since the first line, month, day) on which stamps without year fall."""
    days: set[tuple[int, int, int]] = set()
    turn = 0
    previous: int | None = None
    for line in lines:
        day = traditional_day(line)
        if day is None:
            continue
        of_year = date(2000, *day).timetuple().tm_yday
        if previous is not None:
            if previous - of_year > _HALF_A_YEAR_DAYS:
                turn += 1
            elif of_year - previous > _HALF_A_YEAR_DAYS:
                turn -= 1
        previous = of_year
        days.add((turn, *day))
    return days
