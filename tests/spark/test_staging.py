"""The parts that the stream reads: no line is lost, order is kept, and the sentinel closes every window."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.demo.auth_log import YearAssumption, parse_line
from peacefs.spark_connector.demo.log_generator import generate_log
from peacefs.spark_connector.demo.log_measure import LogMeasure, assume_years, measure
from peacefs.spark_connector.demo.staging import read_lines, stage, watermark_delay_s

WINDOW_S = 600


def measured(path: Path) -> LogMeasure:
    return measure(read_lines([path]), assume_years(read_lines([path]), date(2025, 6, 1)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "auth.log"
    path.write_text("\n".join(generate_log(3, 1000)), encoding="utf-8")
    return path


def test_the_parts_hold_the_lines_of_the_log_in_order(log: Path, tmp_path: Path) -> None:
    parts = stage(read_lines([log]), measured(log), tmp_path / "parts", 12, WINDOW_S)
    assert len(parts) == 13
    assert [line for part in parts[:-1] for line in read_lines([part])] == list(read_lines([log]))
    assert {len(list(read_lines([part]))) for part in parts[:-1]} == {83, 84}
    assert sorted(part.name for part in parts) == [part.name for part in parts]


def test_modification_times_rise_from_part_to_part(log: Path, tmp_path: Path) -> None:
    parts = stage(read_lines([log]), measured(log), tmp_path / "parts", 12, WINDOW_S)
    times = [part.stat().st_mtime for part in parts]
    assert times == sorted(set(times))


def test_the_sentinel_moves_the_watermark_past_the_last_window_and_counts_for_nobody(
    log: Path, tmp_path: Path
) -> None:
    measures = measured(log)
    *_, sentinel = stage(read_lines([log]), measures, tmp_path / "parts", 12, WINDOW_S)
    [line] = read_lines([sentinel])
    parsed = parse_line(line, measures.years)
    assert parsed.at is not None and parsed.failures == 0
    assert measures.last is not None
    watermark = parsed.at.timestamp() - watermark_delay_s(measures)
    last_window_ends = (measures.last.timestamp() // WINDOW_S + 1) * WINDOW_S
    assert watermark >= last_window_ends


def test_the_watermark_tolerates_the_disorder_that_was_measured() -> None:
    for disorder_s in (0.0, 0.3, 12.0):
        assert watermark_delay_s(LogMeasure(YearAssumption(2024), disorder_s=disorder_s)) > disorder_s


def test_foreign_line_ends_and_bytes_become_clean_text(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_bytes(b"2024-01-01T00:00:00Z a\r\nb \xff\xfe\n\r\nlast")
    parts = stage(read_lines([log]), measured(log), tmp_path / "parts", 1, WINDOW_S)
    assert parts[0].read_text(encoding="utf-8") == "2024-01-01T00:00:00Z a\nb \ufffd\ufffd\n\nlast\n"


def test_a_log_shorter_than_the_number_of_parts_gets_fewer(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text("2024-01-01T00:00:00Z a\n2024-01-01T00:00:01Z b\n")
    assert len(stage(read_lines([log]), measured(log), tmp_path / "parts", 12, WINDOW_S)) == 3


def test_a_log_without_any_stamp_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text("nothing\nof use\n")
    with pytest.raises(BadRequest, match="no line with a time stamp"):
        stage(read_lines([log]), measured(log), tmp_path / "parts", 12, WINDOW_S)
