"""The demo's result, printed as one table at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from rich.console import Console

from peacefs.spark_connector.query_progress import Spread

from .query_plan import FailureCount, QueryResult
from .verdict import print_table, print_verdict


class DemoReport(msgspec.Struct, frozen=True):
    """The outcome of the demo. Durations are in ms if the name says so; `seconds` is the whole demo's."""

    input: str
    lines: int
    failed_logins: int
    java: int
    batches: int
    killed_in_batch: int
    killed_datanode: str
    restarts: list[str]
    checkpoint_files: int
    checkpoint_bytes: int
    replicas_lost: int
    replicas_repaired: int
    chunks_under_replicated: int
    log_writes_ms: Spread | None
    state_commit_ms: Spread | None
    rows: int
    differences: list[str]
    seconds: float

    @property
    def equal(self) -> bool:
        return not self.differences


def differences(result: QueryResult) -> list[str]:
    """Return rows that one side has more often, one per line: `-` if the stream lacks it, else `+`.

    A row that the stream emitted twice counts as a difference.
    """
    streamed, batch = Counter(result.streamed), Counter(result.batch)
    marked = [(row, "+") for row in (streamed - batch).elements()]
    marked += [(row, "-") for row in (batch - streamed).elements()]
    return [f"{mark} {_row(row)}" for row, mark in sorted(marked)]


def _row(row: FailureCount) -> str:
    return f"{datetime.fromtimestamp(row.start, UTC):%Y-%m-%d %H:%M} {row.source} {row.failures}"


def new_console(*, stderr: bool) -> Console:
    """Return a console without markup, since file names and messages may look like markup."""
    return Console(stderr=stderr, markup=False, highlight=False)


def print_report(console: Console, report: DemoReport) -> None:
    print_table(console, _lines(report))
    print_verdict(console, "The stream's", report.rows, report.differences)


def _lines(report: DemoReport) -> Iterator[tuple[str, str]]:
    yield "batches", f"{report.batches}, killed in the middle of batch {report.killed_in_batch}"
    yield "restarts", f"{len(report.restarts)}: {'; '.join(report.restarts)}"
    yield "checkpoint", f"{report.checkpoint_files:,} files, {report.checkpoint_bytes:,} bytes"
    yield "replicas lost and repaired", f"{report.replicas_lost:,} and {report.replicas_repaired:,}"
    if report.chunks_under_replicated:
        yield "still under-replicated", f"{report.chunks_under_replicated:,} chunks"
    yield "batch log writes (offsets + commits)", _times(report.log_writes_ms)
    yield "commit of one state store", _times(report.state_commit_ms)
    yield "in all", f"{report.seconds:.0f} s"


def _times(spread: Spread | None) -> str:
    return "not reported" if spread is None else f"median {spread.median:.0f} ms, p95 {spread.p95:.0f} ms"
