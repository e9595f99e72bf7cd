"""The demo's final table."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from peacefs.spark_connector.demo.query_plan import FailureCount, QueryResult
from peacefs.spark_connector.demo.report import DemoReport, differences, print_report
from peacefs.spark_connector.query_progress import Spread

ROWS = [FailureCount(0, "192.0.2.1", 3), FailureCount(600, "192.0.2.1", 1), FailureCount(600, "2001:db8::7", 2)]


def report(found: list[str]) -> DemoReport:
    return DemoReport(
        input="a log",
        lines=2000,
        failed_logins=532,
        java=17,
        batches=14,
        killed_in_batch=4,
        killed_datanode="dn-2",
        restarts=["SIGKILL in batch 4"],
        checkpoint_files=1234,
        checkpoint_bytes=56789,
        replicas_lost=800,
        replicas_repaired=799,
        chunks_under_replicated=1,
        log_writes_ms=Spread(81.4, 120),
        state_commit_ms=None,
        rows=3,
        differences=found,
        seconds=71.3,
    )


def shown(found: list[str]) -> str:
    output = io.StringIO()
    print_report(Console(file=output, width=120, markup=False, highlight=False), report(found))
    return output.getvalue()


def test_equal_rows_differ_in_nothing() -> None:
    assert differences(QueryResult(ROWS, ROWS)) == []


def test_every_row_that_one_side_lacks_or_has_twice_is_named() -> None:
    streamed = [ROWS[0], ROWS[0], FailureCount(600, "192.0.2.1", 7), ROWS[2]]
    assert differences(QueryResult(streamed, ROWS)) == [
        "+ 1970-01-01 00:00 192.0.2.1 3",
        "- 1970-01-01 00:10 192.0.2.1 1",
        "+ 1970-01-01 00:10 192.0.2.1 7",
    ]


def test_the_table_holds_every_figure_and_the_verdict() -> None:
    text = shown([])
    for word in [
        "14",
        "1: SIGKILL in batch 4",
        "1,234 files",
        "56,789 bytes",
        "800 and 799",
        "1 chunks",
    ]:
        assert word in text
    assert "median 81 ms, p95 120 ms" in text
    assert "equal the batch's, row for row" in text


def test_a_difference_is_shown_with_its_rows() -> None:
    text = shown([f"+ row {number}" for number in range(30)])
    assert "differ from the batch's in 30" in text
    assert "+ row 19" in text and "+ row 20" not in text
    assert "equal" not in text


def test_the_report_is_json() -> None:
    read = msgspec.json.decode(msgspec.json.encode(report(["+ x"])), type=DemoReport)
    assert read == report(["+ x"]) and not read.equal
