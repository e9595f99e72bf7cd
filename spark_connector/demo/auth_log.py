"""The grammar of sshd's auth log, and a parser for single lines.

The parser reads a line's instant and, if it reports failed log-ins, their source address and number:

    Dec 10 07:13:56 gate sshd[2]: message repeated 5 times: [ Failed password for root from 192.0.2.7 port 22 ssh2]
    2025-03-01T23:59:59.123+01:00 db sshd-session[7]: Failed none for invalid user x from 2001:db8::7 port 9 ssh2

`auth_log_columns` builds Spark's expressions from the same regular expressions. So these use only what Python and
Java understand alike: no `\\d`, `.`, `$` or named group, whose meanings differ.

An attacker chooses the user name, which may contain ` from 192.0.2.9 port 5`: only the last address counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# The very end of the text. `$` may match before a line break, and Java knows more kinds of line breaks.
_END = r"(?![\s\S])"

#: Month, day and time of a traditional syslog stamp, which has no year.
TRADITIONAL_STAMP = rf"({'|'.join(MONTHS)}) ([ 0-3][0-9]) ([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}) "

#: Date, time, fraction (to the microsecond) and offset of an RFC 3339 stamp.
RFC3339_STAMP = (
    r"((?:19|2[0-9])[0-9]{2}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.]([0-9]{1,6})[0-9]*)?"
    r"(Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9]) "
)

#: A line that reports failed log-ins: how many (group REPEATS) and from where (group SOURCE).
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
    """The year of a log whose stamps have none.

    The log begins on `month`/`day` of `year` and covers less than a year. Earlier calendar days belong to the next
    year, so each line's year follows from its own stamp, on either side of New Year's Eve.
    """

    year: int
    month: int = 1
    day: int = 1

    def year_of(self, month: int, day: int) -> int:
        return self.year if (month, day) >= (self.month, self.day) else self.year + 1


@dataclass(frozen=True, slots=True)
class LogLine:
    """A parsed line. `at` is None if its stamp names no instant; `failures` is 0 for other messages."""

    at: datetime | None
    source: str | None
    failures: int


def traditional_day(line: str) -> tuple[int, int] | None:
    """Return month and day of a stamp without year; None for other lines and for impossible days or times."""
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
    """Return the date of a stamp that includes its year, as written; None for any other line."""
    found = _rfc3339_stamp.match(line)
    try:
        return date.fromisoformat(found[1]) if found is not None else None
    except ValueError:
        return None


def parse_line(line: str, years: YearAssumption) -> LogLine:
    """Parse one line, without its line feed."""
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
