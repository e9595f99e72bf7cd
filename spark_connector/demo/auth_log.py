"""The grammar of sshd's auth log, and its parser for one line at a time.

A line is read as far as its instant and, if it reports failed log-ins, their source address and number:

    Dec 10 07:13:56 gate sshd[2]: message repeated 5 times: [ Failed password for root from 192.0.2.7 port 22 ssh2]
    2025-03-01T23:59:59.123+01:00 db sshd-session[7]: Failed none for invalid user x from 2001:db8::7 port 9 ssh2

The regular expressions are written in what Python and Java understand alike, because `auth_log_columns` builds
Spark's expressions from the same ones: no `\\d`, `.`, `$` or named group, whose meanings differ.

A user name is the attacker's to choose and may hold ` from 192.0.2.9 port 5`: the last address of the line counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# The very end of the text: `$` may stop before a line break, and before other ones in Java than in Python.
_END = r"(?![\s\S])"

#: Month, day and time of a traditional syslog stamp, which has no year.
TRADITIONAL_STAMP = rf"({'|'.join(MONTHS)}) ([ 0-3][0-9]) ([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}) "

#: Date, time, fraction (to the microsecond) and offset of an RFC 3339 stamp.
RFC3339_STAMP = (
    r"((?:19|2[0-9])[0-9]{2}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.]([0-9]{1,6})[0-9]*)?"
    r"(Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9]) "
)

#: A line that reports failed log-ins, however many it says they were, and from where (groups REPEATS and SOURCE).
FAILED_LOGIN = (
    rf"(?:{TRADITIONAL_STAMP}|{RFC3339_STAMP})[^ ]+ sshd(?:-session)?(?:\[[0-9]+\])?: "
    r"(?:message repeated ([1-9][0-9]{0,5}) times: \[ )?"
    r"Failed [^ ]+ for [^\n]* from ([0-9A-Za-z:.%_-]+) port [0-9]+(?: ssh[0-9])?(?:: [^\n]*?)?\]?[ \r]*" + _END
)
REPEATS, SOURCE = 8, 9

_traditional_stamp = re.compile(TRADITIONAL_STAMP)
_rfc3339_stamp = re.compile(RFC3339_STAMP)
_failed_login = re.compile(FAILED_LOGIN)


@dataclass(frozen=True, slots=True)
class YearAssumption:
    """The assumed year of a log whose stamps name none.

    The log begins on `month`/`day` of `year` and covers less than a year: earlier days of the calendar belong
    to the year after. So each line can be judged alone, whichever side of New Year's Eve it is on.
    """

    year: int
    month: int = 1
    day: int = 1

    def year_of(self, month: int, day: int) -> int:
        return self.year if (month, day) >= (self.month, self.day) else self.year + 1


@dataclass(frozen=True, slots=True)
class LogLine:
    """The content of a line: `at` is None unless its stamp names an instant, `failures` is 0 for other news."""

    at: datetime | None
    source: str | None
    failures: int


def traditional_day(line: str) -> tuple[int, int] | None:
    """Month and day of a stamp without year; None for any other line, and for days and times that no year has."""
    found = _traditional_stamp.match(line)
    if found is None:
        return None
    try:
        day = date.fromisoformat(f"2000-{MONTHS.index(found[1]) + 1:02}-{int(found[2]):02}")
        time.fromisoformat(found[3])
    except ValueError:
        return None
    return day.month, day.day


def named_day(line: str) -> date | None:
    """The day of a stamp that names its year, as written; None for any other line."""
    found = _rfc3339_stamp.match(line)
    try:
        return date.fromisoformat(found[1]) if found is not None else None
    except ValueError:
        return None


def parse_line(line: str, years: YearAssumption) -> LogLine:
    """Read one line, without its line feed."""
    found = _failed_login.match(line)
    if found is None:
        return LogLine(_instant(line, years), None, 0)
    return LogLine(_instant(line, years), found[SOURCE], int(found[REPEATS] or 1))


def _instant(line: str, years: YearAssumption) -> datetime | None:
    if found := _traditional_stamp.match(line):
        day = traditional_day(line)
        if day is None:
            return None
        text = f"{years.year_of(*day):04}-{day[0]:02}-{day[1]:02} {found[3]}+00:00"
    elif found := _rfc3339_stamp.match(line):
        text = f"{found[1]} {found[2]}.{found[3] or 0:0<6}{found[4]}"
    else:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
