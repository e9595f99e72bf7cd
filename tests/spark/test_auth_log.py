"""The parser of sshd's auth log: what counts as a failed log-in, and when it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.spark_connector.demo.auth_log import MONTHS, LogLine, YearAssumption, parse_line

YEARS = YearAssumption(2024, 12, 10)
AT = datetime(2024, 12, 10, 6, 55, 46, tzinfo=UTC)
STAMP = "Dec 10 06:55:46 gate sshd[24200]: "


def failed(source: str, times: int = 1, at: datetime = AT) -> LogLine:
    return LogLine(at, source, times)


@pytest.mark.parametrize(
    ("message", "source", "times"),
    [
        ("Failed password for root from 5.36.59.76 port 42393 ssh2", "5.36.59.76", 1),
        ("Failed password for invalid user webmaster from 173.234.31.186 port 38926 ssh2", "173.234.31.186", 1),
        ("Failed none for invalid user 0 from 5.188.10.180 port 49811 ssh2", "5.188.10.180", 1),
        ("Failed password for invalid user  0101 from 5.188.10.180 port 36279 ssh2", "5.188.10.180", 1),
        ("Failed password for invalid user  from 2001:db8::7 port 22 ssh2", "2001:db8::7", 1),
        ("Failed password for root from fe80::1%eth0 port 22 ssh2", "fe80::1%eth0", 1),
        ("Failed password for root from bot.example.net port 22 ssh2", "bot.example.net", 1),
        ("Failed publickey for git from 192.0.2.1 port 22 ssh2: RSA SHA256:9Vqk0vYl/rPw", "192.0.2.1", 1),
        ("Failed keyboard-interactive/pam for root from 192.0.2.1 port 22 ssh2", "192.0.2.1", 1),
        ("message repeated 5 times: [ Failed password for root from 5.36.59.76 port 42393 ssh2]", "5.36.59.76", 5),
    ],
)
def test_a_failed_login_counts_for_the_address_it_came_from(message: str, source: str, times: int) -> None:
    assert parse_line(STAMP + message, YEARS) == failed(source, times)
    assert parse_line(STAMP + message + "\r", YEARS) == failed(source, times), "a CRLF log"


@pytest.mark.parametrize(
    "message",
    [
        "Accepted password for ada from 192.0.2.1 port 22 ssh2",
        "Invalid user webmaster from 173.234.31.186",
        "Failed password for root",
        "Failed password for root from 192.0.2.1",
        "error: Failed password for root from 192.0.2.1 port 22 ssh2",
        "message repeated 0 times: [ Failed password for root from 192.0.2.1 port 22 ssh2]",
        "message repeated 3 times: [ Accepted password for root from 192.0.2.1 port 22 ssh2]",
        "pam_unix(sshd:auth): authentication failure; logname= uid=0 rhost=192.0.2.1",
        "",
    ],
)
def test_other_news_of_sshd_has_an_instant_and_no_failure(message: str) -> None:
    assert parse_line(STAMP + message, YEARS) == LogLine(AT, None, 0)


def test_a_failure_that_another_program_reports_does_not_count() -> None:
    line = "Dec 10 06:55:46 gate su[7]: Failed password for root from 192.0.2.1 port 22 ssh2"
    assert parse_line(line, YEARS) == LogLine(AT, None, 0)


def test_a_user_name_cannot_shift_the_blame() -> None:
    message = "Failed password for invalid user x from 192.0.2.99 port 1 ssh2 from 203.0.113.5 port 4711 ssh2"
    assert parse_line(STAMP + message, YEARS) == failed("203.0.113.5")


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("Dec 10 06:55:46", AT),
        ("Jan  1 00:00:00", datetime(2025, 1, 1, tzinfo=UTC)),
        ("Jan 01 00:00:00", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2023-03-01T23:59:59Z", datetime(2023, 3, 1, 23, 59, 59, tzinfo=UTC)),
        ("2023-03-01T23:59:59.25+01:00", datetime(2023, 3, 1, 22, 59, 59, 250_000, tzinfo=UTC)),
        ("2023-03-01T23:59:59.123456789-05:30", datetime(2023, 3, 2, 5, 29, 59, 123_456, tzinfo=UTC)),
        ("2024-02-29T12:00:00+00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ],
)
def test_both_kinds_of_stamp_name_an_instant(stamp: str, at: datetime) -> None:
    line = f"{stamp} gate sshd-session[1]: Failed password for root from 192.0.2.1 port 22 ssh2"
    assert parse_line(line, YEARS) == failed("192.0.2.1", at=at)


@pytest.mark.parametrize(
    "stamp",
    [
        "Feb 29 12:00:00",  # of 2025, which is no leap year
        "Feb 30 12:00:00",
        "Dec  0 12:00:00",
        "Dec 10 24:00:00",
        "Dec 10 23:59:60",
        "dec 10 12:00:00",
        "2023-02-29T12:00:00Z",
        "2023-13-01T12:00:00Z",
        "2023-03-01 12:00:00Z",
        "2023-03-01T12:00:00",
        "0000-03-01T12:00:00Z",
        "١٢٣٤-03-01T12:00:00Z",
        "",
    ],
)
def test_a_stamp_that_names_no_instant_leaves_the_line_out_of_time(stamp: str) -> None:
    line = f"{stamp} gate sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2"
    assert parse_line(line, YEARS).at is None


def test_the_days_before_the_first_of_the_log_belong_to_the_next_year() -> None:
    assert [YEARS.year_of(*day) for day in [(12, 10), (12, 31), (1, 1), (12, 9)]] == [2024, 2024, 2025, 2025]


@given(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_every_instant_survives_being_written_and_read(instant: datetime, offset_minutes: int) -> None:
    at = instant.replace(tzinfo=UTC)
    assert parse_line(f"{at.isoformat()} h sshd: x", YEARS).at == at
    traditional = f"{MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S} h sshd: x"
    assert parse_line(traditional, YearAssumption(at.year)).at == at.replace(microsecond=0)


@given(st.text())
def test_no_text_upsets_the_parser(text: str) -> None:
    assert parse_line(text, YEARS).failures == 0
    parse_line(STAMP + "Failed password for " + text, YEARS)
