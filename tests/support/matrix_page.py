"""Write docs/checkpoint-matrix.md from a run of the checkpoint matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oracles.checkpoint_matrix import EVENTS, KINDS, KNOWN, LAYOUTS, Cell

from .matrix_record import missing
from .matrix_run import Report

PAGE = Path(__file__).parents[2] / "docs" / "checkpoint-matrix.md"
_HEAD = """# The checkpoint matrix

Does each kind of query go on exactly after each event, with each way to keep state? Written by a run of
`PEACEFS_MATRIX=write` (`tests/spark/test_checkpoint_matrix.py`); `PEACEFS_LONG=1` runs two of the cells.

All queries of a Spark run on a peacefs cluster at once and are killed together (SIGKILL) at random moments. Each
event is then made on a fork with `peacefs checkpoint`, and Spark goes on to the end of the input. A cell counts
the events after which `verify` named the batch with which Spark went on, the sink had exactly the rows that DuckDB
computes from the whole input, and `verify` found the checkpoint whole. Events that were not tried are "not run".
"""


def render(reports: list[Report]) -> str:
    """Return the page."""
    return "\n".join(
        [
            _HEAD,
            *_events(),
            *(line for report, lacking in missing(reports) for line in _spark(report, lacking)),
            *_failures(reports),
        ]
    )


def unexpected(reports: list[Report]) -> list[str]:
    """Return a line for each outcome that is neither exact nor known to be Spark's fault."""
    return [
        f"{report.spark}: {cell.kind}, {cell.layout}, {event}: {outcome}"
        for report in reports
        for (cell, event), outcome in report.outcomes.items()
        if outcome != "exact" and not _known(report, cell, event)
    ]


def _known(report: Report, cell: Cell, event: str) -> str | None:
    """Return why Spark itself fails in a cell."""
    for known in KNOWN:
        if known.matches(report.version, cell, event):
            return known.why
    return None


def _events() -> Iterator[str]:
    yield f"Events: {', '.join(EVENTS)} (repartitions need Spark 4.2; `upgraded` goes on from the Spark before).\n"


def _spark(report: Report, lacking: set[tuple[Cell, str]]) -> Iterator[str]:
    names = {cell.layout for cell, _ in lacking} | {cell.layout for cell, _ in report.outcomes}
    layouts = [name for name in LAYOUTS if name in names]
    moments = ", ".join(f"{count} times {moment}" for moment, count in sorted(report.moments.items()))
    yield f"## Spark {report.spark}\n"
    yield f"Where the queries were when they were killed: {moments}.\n"
    yield f"{len(report.outcomes)} events in cells were run, {len(lacking)} were not run.\n"
    yield f"| query | {' | '.join(layouts)} |"
    yield f"| --- |{' --- |' * len(layouts)}"
    for kind in KINDS:
        counts = [_count(report, lacking, Cell(kind, layout)) for layout in layouts]
        yield f"| {kind} | {' | '.join(counts)} |"
    yield ""


def _count(report: Report, lacking: set[tuple[Cell, str]], cell: Cell) -> str:
    made = [outcome for (its, _), outcome in report.outcomes.items() if its == cell]
    absent = sum(its == cell for its, _ in lacking)
    said = f"{sum(outcome == 'exact' for outcome in made)} of {len(made)}" if made else ""
    if not absent:
        return said
    return f"{said}, {absent} not run" if made else "not run"


def _failures(reports: list[Report]) -> Iterator[str]:
    yield "## What is not exact\n"
    rows = []
    for report in reports:
        for (cell, event), outcome in report.outcomes.items():
            if outcome != "exact":
                why = _known(report, cell, event) or f"not explained: {outcome[:200]}"
                rows.append((report.spark, event, why, f"{cell.kind} ({cell.layout})"))
    if not rows:
        yield "Nothing of what was run.\n"
        return
    yield "| Spark | event | cells | why |"
    yield "| --- | --- | --- | --- |"
    for spark, event, why in sorted({row[:3] for row in rows}):
        where = [row[3] for row in rows if row[:3] == (spark, event, why)]
        named = "; ".join(where[:4]) + (f"; {len(where) - 4} more" if len(where) > 4 else "")
        yield f"| {spark} | {event} | {named} | {why.replace('|', '/')} |"
    yield ""
