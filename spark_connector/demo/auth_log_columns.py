"""The parser of `auth_log` as Spark SQL expressions, built from the same regular expressions.

A test checks that both give the same results. No Python runs in Spark's executors.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from .auth_log import (
    FAILED_LOGIN,
    MONTHS,
    REPEATS,
    RFC3339_STAMP,
    SOURCE,
    TRADITIONAL_STAMP,
    YearAssumption,
)


def instant(line: Column, years: YearAssumption) -> Column:
    """Return a line's TIMESTAMP, or null if it has none. The session's time zone has no effect."""
    return F.coalesce(_traditional_instant(line, years), _rfc3339_instant(line))


def source(line: Column) -> Column:
    """Return the address that failed to log in; null for other messages."""
    return F.nullif(_group(line, FAILED_LOGIN, SOURCE), F.lit(""))


def failures(line: Column) -> Column:
    """Return the number of failed log-ins that the line reports, as a BIGINT; 0 for other messages."""
    repeats = _group(line, FAILED_LOGIN, REPEATS)
    return (
        F.when(source(line).isNull(), F.lit(0))
        .when(repeats == "", F.lit(1))
        .otherwise(repeats.try_cast("bigint"))
        .cast("bigint")
    )


def _group(line: Column, pattern: str, group: int) -> Column:
    """Return a group of a pattern that matches at the line's start; empty if the line does not match."""
    return F.regexp_extract(line, f"^{pattern}", group)


def _traditional_instant(line: Column, years: YearAssumption) -> Column:
    month_numbers = F.create_map(
        *[F.lit(entry) for pair in zip(MONTHS, range(1, 13), strict=True) for entry in pair]
    )
    month = month_numbers[_group(line, TRADITIONAL_STAMP, 1)]
    day = F.trim(_group(line, TRADITIONAL_STAMP, 2)).try_cast("int")
    first_day = years.month * 100 + years.day
    year = F.when(month * 100 + day >= first_day, F.lit(years.year)).otherwise(F.lit(years.year + 1))
    time = _group(line, TRADITIONAL_STAMP, 3)
    return F.format_string("%04d-%02d-%02d %s+00:00", year, month, day, time).try_cast("timestamp")


def _rfc3339_instant(line: Column) -> Column:
    date, time, fraction, offset = (_group(line, RFC3339_STAMP, group) for group in (1, 2, 3, 4))
    return F.concat(date, F.lit(" "), time, F.lit("."), F.rpad(fraction, 6, "0"), offset).try_cast("timestamp")
