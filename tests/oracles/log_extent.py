"""The time range of an sshd log as DuckDB reads it. Uses nothing of the demo's parser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb

# A time stamp without a year gets the year that brings it nearest to the log's first stamp with a year.
_EXTENT = r"""
WITH lines AS (SELECT unnest($lines) AS line, unnest(range(len($lines))) AS number),
named AS (
    SELECT number, try_cast(
        regexp_extract(line, '^(2\d{3}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)) ', 1) AS TIMESTAMPTZ
    ) AS instant FROM lines
),
anchor AS (SELECT any_value(instant) AS instant FROM named WHERE instant IS NOT NULL),
yearless AS (
    SELECT number, regexp_extract(line, '^([A-Z][a-z]{2} [ 0-3]\d \d\d:\d\d:\d\d) ', 1) AS stamp FROM lines
),
guesses AS (
    SELECT number, try_strptime(
        (year(anchor.instant) + step) || ' ' || stamp || ' +00', '%Y %b %d %H:%M:%S %z'
    ) AS instant
    FROM yearless, anchor, (SELECT unnest([-1, 0, 1]) AS step) WHERE stamp <> ''
),
nearest AS (
    SELECT number, arg_min(guesses.instant, abs(epoch(guesses.instant) - epoch(anchor.instant))) AS instant
    FROM guesses, anchor WHERE guesses.instant IS NOT NULL GROUP BY number
),
stamped AS (
    SELECT number, instant FROM nearest UNION ALL SELECT number, instant FROM named WHERE instant IS NOT NULL
),
behind AS (
    SELECT instant, epoch_us(max(instant) OVER (ORDER BY number)) - epoch_us(instant) AS behind_us FROM stamped
)
SELECT count(*), min(instant), max(instant), max(behind_us) FROM behind
"""


@dataclass(frozen=True)
class LogExtent:
    stamped: int
    first: datetime
    last: datetime
    disorder_s: float


def extent_of(lines: Sequence[str]) -> LogExtent:
    """Measure a log of a few days. Some of its lines name their year."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        row = database.execute(_EXTENT, {"lines": list(lines)}).fetchone()
    assert row is not None
    stamped, first, last, behind_us = row
    return LogExtent(stamped, first, last, behind_us / 1_000_000)
