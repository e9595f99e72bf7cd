"""The measures of a log before a stream reads it, and the assumed years."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.log_extent import LogExtent, extent_of

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.demo.auth_log import MONTHS, YearAssumption, parse_line
from peacefs.spark_connector.demo.log_generator import DEFAULT_START, LATE_SECONDS_MAX, generate_log
from peacefs.spark_connector.demo.log_measure import LogMeasure, assume_years, measure

TODAY = date(2026, 11, 20)


def lines(*stamps: str) -> list[str]:
    return [f"{stamp} gate sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2" for stamp in stamps]


def stamped(at: datetime) -> str:
    return f"{MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S}"


def test_lines_failures_extent_and_disorder_are_measured() -> None:
    log = ["garbage", *lines("Mar  1 10:00:00", "Mar  1 10:05:00", "Mar  1 10:03:30", "Mar  1 10:04:00")]
    assert measure(log, YearAssumption(2026)) == LogMeasure(
        years=YearAssumption(2026),
        lines=5,
        stamped=4,
        failures=4,
        first=datetime(2026, 3, 1, 10, tzinfo=UTC),
        last=datetime(2026, 3, 1, 10, 5, tzinfo=UTC),
        disorder_s=90.0,
    )


def test_an_empty_log_has_no_extent() -> None:
    assert measure([], YearAssumption(2026)) == LogMeasure(YearAssumption(2026))


@pytest.mark.parametrize(
    ("stamps", "years"),
    [
        (["Mar  1 10:00:00"], YearAssumption(2026, 3, 1)),
        (["Nov 20 10:00:00"], YearAssumption(2026, 11, 20)),
        (["Nov 21 10:00:00"], YearAssumption(2025, 11, 21)),
        (["Dec 31 23:59:59", "Jan  1 00:00:01"], YearAssumption(2025, 12, 31)),
        (["Jan  1 00:00:01", "Dec 31 23:59:59", "Jan  1 00:00:02"], YearAssumption(2025, 12, 31)),
        (["Feb 28 10:00:00", "Feb 29 10:00:00"], YearAssumption(2024, 2, 28)),
        (["Dec 31 10:00:00", "Feb 29 10:00:00"], YearAssumption(2023, 12, 31)),
        (["2020-01-01T00:00:00Z"], YearAssumption(2026)),
        (["Feb 31 10:00:00"], YearAssumption(2026)),
    ],
)
def test_stamps_without_year_are_taken_for_the_latest_years_that_can_be(
    stamps: list[str], years: YearAssumption
) -> None:
    assert assume_years(lines(*stamps), TODAY) == years


def test_the_distance_of_eight_years_around_1900_is_bridged() -> None:
    assert assume_years(lines("Feb 29 10:00:00"), date(1903, 5, 1)).year == 1896


def test_a_log_of_more_than_a_year_is_refused_unless_it_names_its_years() -> None:
    with pytest.raises(BadRequest, match="a year or more"):
        assume_years(lines("Mar  1 10:00:00", "Aug  1 10:00:00", "Jan  1 10:00:00", "Mar  1 10:00:00"), TODAY)


@given(st.datetimes(datetime(2001, 1, 1), datetime(2026, 1, 1)), st.lists(st.integers(1, 20 * 86400), max_size=15))
def test_a_log_of_less_than_a_year_keeps_its_order_across_new_years_eve(start: datetime, steps: list[int]) -> None:
    instants = [start.replace(microsecond=0, tzinfo=UTC)]
    for step in steps:
        instants.append(instants[-1] + timedelta(seconds=step))
    log = lines(*(stamped(at) for at in instants))
    years = assume_years(log, TODAY)
    parsed = [parse_line(line, years).at for line in log]
    assert all(at is not None and at.date() <= TODAY for at in parsed)
    measured = measure(log, years)
    assert measured.stamped == len(log)
    assert measured.disorder_s == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_a_generated_log_is_no_later_than_it_says_and_holds_what_makes_real_ones_hard(seed: int) -> None:
    log = generate_log(seed, 1500)
    assert log == generate_log(seed, 1500)
    years = assume_years(log, date(2025, 6, 1))
    assert years == YearAssumption(2024, 12, 31)
    measured = measure(log, years)
    assert measured.lines == 1500
    assert 0 < measured.disorder_s <= LATE_SECONDS_MAX
    assert measured.first is not None and measured.first >= DEFAULT_START
    parsed = [parse_line(line, years) for line in log]
    assert any(line.failures > 1 for line in parsed), "repeated messages"
    assert any(line.source is not None and ":" in line.source for line in parsed), "IPv6"
    assert any(line.at is None for line in parsed), "garbage"
    assert any(line.at is not None and not line.failures for line in parsed), "other news"
    assert "192.0.2.99" not in {line.source for line in parsed}, "the bait in a user name"


def test_disorder_is_the_most_that_a_line_comes_late() -> None:
    rng = Random(7)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    seconds = [rng.randrange(3600) for _ in range(200)]
    late = [max(seconds[: position + 1]) - second for position, second in enumerate(seconds)]
    log = lines(*(stamped(start + timedelta(seconds=second)) for second in seconds))
    assert measure(log, YearAssumption(2026)).disorder_s == max(late)


#: The first, a middle and the last day of each month, and the days around New Year's Eve, in several years.
CLOCKS = [
    *(date(2026, month, day) for month in range(1, 13) for day in (1, 15, 28)),
    *(
        date(year, month, day)
        for year in (2024, 2027, 2028)
        for month, day in [(1, 1), (2, 29 - year % 4), (12, 31)]
    ),
]


def test_a_generated_log_has_the_same_years_whatever_day_it_is_read() -> None:
    log = generate_log(1, 2000)
    judged = extent_of(log)
    assert judged.first >= datetime(2024, 12, 31, 21, tzinfo=UTC)
    assert judged.last < datetime(2025, 1, 2, tzinfo=UTC)
    assert judged.disorder_s <= LATE_SECONDS_MAX
    for clock in CLOCKS:
        measured = measure(log, assume_years(log, clock))
        found = LogExtent(measured.stamped, measured.first, measured.last, measured.disorder_s)  # type: ignore[arg-type]
        assert (clock, found) == (clock, judged)


@pytest.mark.parametrize("month", range(1, 13))
def test_a_log_that_begins_in_any_month_is_judged_by_the_lines_that_name_their_year(month: int) -> None:
    for start in (datetime(2025, month, 1, tzinfo=UTC), datetime(2028, month, 28, 22, tzinfo=UTC)):
        log = generate_log(month, 300, start)
        judged = extent_of(log)
        for clock in (start.date(), start.date() + timedelta(days=400), date(2031, 3, 1)):
            measured = measure(log, assume_years(log, clock))
            found = LogExtent(measured.stamped, measured.first, measured.last, measured.disorder_s)  # type: ignore[arg-type]
            assert (start, clock, found) == (start, clock, judged)
