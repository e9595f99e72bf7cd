"""Print the demo's results: a table, and the verdict under it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from peacefs.spark_connector.demo.verdict import print_table, print_verdict

from .measures import Latency, Report


def print_report(console: Console, report: Report) -> None:
    print_table(console, _lines(report))
    print_verdict(console, "The dataflow's", report.rows, report.differences)


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    yield "tuples", f"{report.lines:,} lines in, {report.rows:,} rows out"
    yield "throughput", f"{report.lines_per_s:,.0f} lines/s over {report.seconds:.1f} s"
    for phase, found in report.latency.items():
        yield f"latency {phase}", _latency(found)
    taken = report.checkpoints
    if taken is not None:
        yield (
            "checkpoints",
            f"{taken.count}, median {taken.bytes_median:,} bytes, largest {taken.bytes_max:,}; "
            f"{taken.pages_written:,} pages written, {taken.pages_referred:,} referred to",
        )
        yield "pause", f"median {taken.pause_ms_median} ms, longest {taken.pause_ms_max} ms"
        yield "stored within", f"{taken.stored_ms_median} ms (median)"
    yield "killed", f"executor {report.killed_executor}, datanode {report.killed_datanode}"
    yield "to detect", f"{report.detect_s * 1000:.0f} ms"
    yield "to load", f"{report.load_s * 1000:.0f} ms"
    yield "to replay", f"{report.replay_s * 1000:.0f} ms"
    yield "output again", f"{report.output_again_s * 1000:.0f} ms after the kill"
    yield "in all", f"{report.demo_seconds:.0f} s"


def _latency(found: Latency | None) -> str:
    if found is None:
        return "no window"
    return f"p50 {found.p50_ms} ms, p99 {found.p99_ms} ms ({found.windows:,} windows)"
