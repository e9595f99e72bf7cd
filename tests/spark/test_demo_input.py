"""The choice of the demo's log."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.demo import input as demo_input
from peacefs.spark_connector.demo.auth_log import YearAssumption
from peacefs.spark_connector.demo.input import choose_input

LINE = "Dec 10 06:55:46 gate sshd[2]: Failed password for root from 192.0.2.7 port 22 ssh2\n"


def test_the_log_that_is_named_is_read_and_taken_for_no_later_than_it_was_written(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text(LINE)
    os.utime(log, (1_577_836_800, 1_577_836_800))  # 2020-01-01
    chosen = choose_input(log, tmp_path)
    assert (chosen.logs, chosen.measured.failures, chosen.measured.years.year) == ((log,), 1, 2019)


def test_without_a_real_log_at_hand_one_is_made_up_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_input, "REAL_LOG", tmp_path / "absent.log")
    chosen = choose_input(None, tmp_path)
    assert chosen.logs[0].parent == tmp_path
    assert "made up" in chosen.description
    assert chosen.measured.failures > 500


def test_a_real_log_at_hand_comes_before_a_made_up_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real.log"
    real.write_text(LINE)
    monkeypatch.setattr(demo_input, "REAL_LOG", real)
    assert choose_input(None, tmp_path).logs == (real,)


def test_a_directory_is_read_as_one_log_in_the_order_in_which_rotation_wrote_it(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "auth.log").write_text(LINE.replace("Dec 10", "Jan  1"))
    with gzip.open(logs / "auth.log.1.gz", "wt") as old:
        old.write(LINE)
    (logs / ".hidden").write_text(LINE)
    (logs / "older").mkdir()
    for name, at in [("auth.log.1.gz", 1_577_836_800), ("auth.log", 1_577_923_200)]:
        os.utime(logs / name, (at, at))
    chosen = choose_input(logs, tmp_path)
    assert [log.name for log in chosen.logs] == ["auth.log.1.gz", "auth.log"]
    assert chosen.measured.lines == 2
    assert chosen.measured.disorder_s == 0.0
    assert chosen.measured.years == YearAssumption(2019, 12, 10)


def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "auth.log.gz"
    for damaged in (gzip.compress(LINE.encode())[:-9], b"no archive at all"):
        log.write_bytes(damaged)
        with pytest.raises(StartupError, match="cannot read"):
            choose_input(log, tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read"),
        ("Dec 10 06:55:46 gate sshd[2]: nothing wrong\n", "no failed log-in"),
        ("", "no failed log-in"),
        (LINE + LINE.replace("Dec", "Mar") + LINE.replace("Dec", "Jul") + LINE, "a year or more"),
    ],
)
def test_a_log_that_is_of_no_use_is_refused_in_one_line(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    log = tmp_path / "auth.log"
    if content is not None:
        log.write_text(content)
    with pytest.raises(StartupError, match=complaint) as raised:
        choose_input(log, tmp_path)
    assert "\n" not in raised.value.message
