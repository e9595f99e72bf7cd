"""Measure a log before a stream reads it: its years, its extent, its disorder.

The disorder is the most by which a line's time lies behind an earlier line's. A watermark must tolerate it.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from peacefs.protocol.errors import BadRequest

from .auth_log import YearAssumption, named_day, parse_line, traditional_day

_HALF_A_YEAR_DAYS = 183
# Two leap years are never further apart than this (1896 and 1904).
_LEAP_YEAR_DISTANCE = 8


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """Measures of one log. `first` and `last` are the earliest and latest instants, None if no line has one."""

    years: YearAssumption
    lines: int = 0
    stamped: int = 0
    failures: int = 0
    first: datetime | None = None
    last: datetime | None = None
    disorder_s: float = 0.0


def measure(lines: Iterable[str], years: YearAssumption) -> LogMeasure:
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
    """Return the year in which a log with year-less stamps begins.

    Stamps with a year decide: a stamp without year gets the year nearest to its neighbour. Without any, the latest
    possible year is taken: all days must exist (29 February), and none may lie after `not_after`.

    A step back of more than half a year is taken for New Year's Eve, a step forward of that size for a late line
    of the old year. Raises BadRequest if the stamps then cover a year or more: years would be ambiguous.
    """
    days = _Days()
    for line in lines:
        days.add(line)
    if not days.seen:
        return YearAssumption(not_after.year)
    opening, closing = min(days.seen), max(days.seen)
    if closing >= (opening[0] + 1, *opening[1:]):
        raise BadRequest(
            "the log covers a year or more and its stamps name no year: split it, or write RFC 3339 stamps"
        )
    year = days.first_year
    if year is None:
        year = _latest_year(days.seen, not_after)
    return YearAssumption(year + opening[0], opening[1], opening[2])


def _latest_year(days: set[tuple[int, int, int]], not_after: date) -> int:
    """Return the latest year for turn 0 in which all days exist and none lies after `not_after`."""
    closing = max(days)
    leap_turns = {turn for turn, month, day in days if (month, day) == (2, 29)}
    year = not_after.year - min(days)[0]
    while (year + closing[0], *closing[1:]) > (not_after.year, not_after.month, not_after.day):
        year -= 1
    for _ in range(_LEAP_YEAR_DISTANCE):
        if all(calendar.isleap(year + turn) for turn in leap_turns):
            break
        year -= 1
    return year


class _Days:
    """Collect the days of stamps without year, line by line."""

    def __init__(self) -> None:
        #: (turn of the year since the first line, month, day)
        self.seen: set[tuple[int, int, int]] = set()
        #: The year of turn 0, known once a stamp with a year stands next to one without.
        self.first_year: int | None = None
        self._last: tuple[int, int, int] | None = None
        self._last_named: date | None = None

    def add(self, line: str) -> None:
        if (day := traditional_day(line)) is not None:
            self._last = (self._turn_of(day), *day)
            self.seen.add(self._last)
        elif (named := named_day(line)) is not None:
            self._last_named = named
        else:
            return
        if self.first_year is None and self._last is not None and self._last_named is not None:
            turn, *of_year = self._last
            self.first_year = _nearest_year(of_year[0], of_year[1], self._last_named) - turn

    def _turn_of(self, day: tuple[int, int]) -> int:
        if self._last is None:
            return 0
        turn, month, of_month = self._last
        step = (date(2000, *day) - date(2000, month, of_month)).days
        return turn + (step < -_HALF_A_YEAR_DAYS) - (step > _HALF_A_YEAR_DAYS)


def _nearest_year(month: int, day: int, near: date) -> int:
    """Return the year in which a calendar day lies nearest to `near`."""

    def distance(year: int) -> int:
        # 28 February replaces 29 February in other years.
        exists = (month, day) != (2, 29) or calendar.isleap(year)
        return abs((date(year, month, day if exists else 28) - near).days)

    return min(range(near.year - 1, near.year + 2), key=distance)
