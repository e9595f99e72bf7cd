"""The main use of dataflows, as its user runs it: `peacefs dataflow demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.spark_connector.dataflow_demo import news
from peacefs.spark_connector.dataflow_demo.load import make_load
from peacefs.spark_connector.dataflow_demo.measures import differences, latencies
from peacefs.spark_connector.demo.auth_log import YearAssumption, parse_line
from peacefs.spark_connector.demo.log_generator import generate_log

_DEMO = [sys.executable, "-m", "peacefs", "dataflow", "demo"]
_YEARS = YearAssumption(2024, 12, 1)


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.long("two minutes")
@pytest.mark.timeout(900)
def test_dataflow_that_loses_an_executor_and_a_datanode_stays_exact(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text("\n".join(generate_log(4, 1000)), encoding="utf-8")
    work = tmp_path / "work"
    done = subprocess.run(
        [*_DEMO, "--input", str(log), "--lines", "12000", "--rate", "1000", "--dir", str(work), "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differences"] == []
    assert report["lines"] == 12_000
    assert report["rows"] > 100
    assert report["killed_executor"]
    assert report["killed_datanode"]
    assert report["checkpoints"]["count"] > 3
    assert 0 < report["detect_s"] < report["output_again_s"]
    assert report["latency"]["before"]["windows"] > 10
    assert report["latency"]["after"]["windows"] > 10
    assert not work.exists(), "nothing is left"


def test_load_is_one_long_log_that_begins_again_later() -> None:
    """A repetition has the same lines at later times, after all lines of the previous one."""
    log = generate_log(4, 50)
    load = make_load(log, _YEARS, 150, gap_s=60)
    assert len(load.lines) == 150
    read = [parse_line(line, _YEARS) for line in load.lines]
    news_of = [[(each.source, each.failures) for each in read[first : first + 50]] for first in (0, 50, 100)]
    assert news_of[0] == news_of[1] == news_of[2]
    instants = [[each.at for each in read[first : first + 50] if each.at] for first in (0, 50, 100)]
    assert max(instants[0]) < min(instants[1])
    assert max(instants[1]) < min(instants[2])
    assert load.latest_us == sorted(load.latest_us)


def test_differences_count_rows() -> None:
    """A repeated row counts as a difference."""
    rows = [(0, "192.0.2.1", 3), (600_000_000, "192.0.2.1", 1)]
    assert differences(rows, rows) == []
    assert differences([*rows, rows[0]], rows[:1]) == [
        "+ 1970-01-01 00:00 192.0.2.1 3",
        "+ 1970-01-01 00:10 192.0.2.1 1",
    ]
    assert differences([], rows[:1]) == ["- 1970-01-01 00:00 192.0.2.1 3"]


def test_latencies_are_divided_by_the_failure() -> None:
    """A window that was completed before the kill and delivered after it counts as during the failure."""

    def delivered(offered_s: float, at_s: float) -> news.Delivered:
        return news.Delivered(at_s, offered_s, (at_s - offered_s) * 1000, 1)

    seen = [delivered(1.0, 1.01), delivered(9.9, 12.0), delivered(11.0, 12.0), delivered(13.0, 13.5)]
    found = latencies(seen, killed_s=10.0, again_s=12.0)
    assert {phase: each.windows for phase, each in found.items() if each} == {"before": 1, "during": 2, "after": 1}
    assert found["during"].p99_ms == 2100.0  # type: ignore[union-attr]
    assert latencies([], 10.0, 12.0)["before"] is None
