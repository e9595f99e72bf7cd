"""Fetch a driver's last report on its query, if the checkpoint is in a cluster and the driver reports."""

from __future__ import annotations

import time
from collections.abc import Iterator

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.protocol.values.query_reports import QueryReport, QueryState
from peacefs.protocol.values.query_runs import without_run


def last_report(owner: str, root: str) -> QueryReport | None:
    """Return the last report. `owner` is the coordinator's address, empty if local. Raises PeacefsError."""
    if not owner:
        return None
    with CheckpointRuns(parse_address(owner)) as runs:
        return report_of(runs, root)


def report_of(runs: CheckpointRuns, root: str) -> QueryReport | None:
    """Return the report on exactly this root."""
    return next((said for said in runs.reports(root) if without_run(said.location) == root), None)


def seconds_since(report: QueryReport) -> float:
    """Return the age of a report by this machine's clock."""
    return max(0.0, time.time() - report.reported_ms / 1000)


def report_lines(report: QueryReport | None) -> Iterator[str]:
    if report is None:
        return
    state = report.state.value if report.state is not QueryState.FAILED else f"failed: {report.error}"
    yield (
        f"Reported {seconds_since(report):.0f} s ago by process {report.pid} on {report.host}"
        f"{f' of {report.name}' if report.name else ''}: {state}"
    )
    last = report.last_batch
    if last is not None:
        whole = last.durations_ms.get("triggerExecution", 0)
        yield (
            f"  batch {last.batch}: {last.rows} rows, {last.rows_per_second:.0f} a second, in {whole} ms; "
            f"{last.checkpoint_ms:.0f} ms of it writing the checkpoint (offsets {last.offsets_ms}, "
            f"commits {last.commits_ms}, state {last.state_ms:.0f})"
        )
    if report.dropped:
        yield f"  {report.dropped} reports were dropped"
