"""`peacefs checkpoint ls`, `show` and `verify`.

The exit status of `verify`: 0 whole; 3 faults that a restart survives; 4 a restart fails, but a repair or a
rollback would help; 5 neither helps. (1 is an error of the command, 2 wrong usage.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import human_size, local_minute, utc_second
from peacefs.client.command_line.session import Session
from peacefs.spark_connector.checkpoints.catalogue import (
    CheckpointSummary,
    StoreSummary,
    describe,
    find_all,
    read_layout,
    summarise,
    summarise_stores,
)
from peacefs.spark_connector.checkpoints.findings import Fault, StartVerdict, Verdict
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.places import CheckpointPlace, checkpoint_place
from peacefs.spark_connector.checkpoints.repartitions import RepartitionSummary, repartitions
from peacefs.spark_connector.checkpoints.reports import last_report, report_lines
from peacefs.spark_connector.checkpoints.sink_logs import SinkLog
from peacefs.spark_connector.checkpoints.start_modes import StartMode
from peacefs.spark_connector.checkpoints.unit_checkpoints import UnitSummary, is_unit_root, summarise_units
from peacefs.spark_connector.checkpoints.verification import verify

from .ancestry import ancestry_rows
from .inspect_units import HEADINGS as UNIT_HEADINGS
from .inspect_units import NUMBERS as UNIT_NUMBERS
from .inspect_units import show_units, unit_row, verify_units_at

_HEADINGS = ("BATCH", "PLANNED", "OPERATORS", "FILES", "SIZE", "LAST WRITE", "QUERY", "PATH")
#: The leading columns are numbers, aligned right; the others are words.
_NUMBERS = 5
_VERSIONS_SHOWN = 3
_STARTS = {
    StartMode.ORDINARY: "an ordinary start",
    StartMode.ASYNC_PROGRESS: "with asyncProgressTrackingEnabled",
    StartMode.REAL_TIME: "in Real-time Mode",
}


def list_checkpoints(session: Session, texts: Sequence[str], *, as_json: bool) -> None:
    """Print each checkpoint at or below each path."""
    summaries: list[CheckpointSummary] = []
    units: list[UnitSummary] = []
    for text in texts:
        with session.errors.about(text):
            place = checkpoint_place(session, text)
            for root, of_units in find_all(place.tree, place.root):
                if of_units:
                    units += summarise_units(place.tree, root)
                else:
                    summaries.append(_summary(place, root))
    if as_json:
        for each in (*summaries, *units):
            print_line(msgspec.json.encode(each).decode())
        return
    if summaries:
        for line in _table([_HEADINGS, *map(_row, summaries)], _NUMBERS):
            print_line(line)
    if units:
        for line in _table([UNIT_HEADINGS, *map(unit_row, units)], UNIT_NUMBERS):
            print_line(line)


def show_checkpoint(session: Session, text: str, *, stores: bool, as_json: bool) -> None:
    """Print everything known of one checkpoint; with `stores` also each store of each partition."""
    place = checkpoint_place(session, text)
    if is_unit_root(place.tree, place.root):
        show_units(place, as_json=as_json)
        return
    report = last_report(place.owner, place.root)
    if as_json:
        print_line(msgspec.json.encode(describe(place.tree, place.root) | {"report": report}).decode())
        return
    layout = read_layout(place.tree, place.root)
    inspection = Inspection(place.tree, layout)
    summary, made = summarise(inspection), repartitions(inspection)
    details = summarise_stores(layout) if stores else []
    for line in (*_description(summary, made), *report_lines(report), *map(_store_line, details)):
        print_line(line)


def verify_checkpoint(session: Session, text: str, batch: int | None, sink: str | None, *, as_json: bool) -> int:
    """Print a checkpoint's faults, and return the exit status. Raises PeacefsError."""
    place = checkpoint_place(session, text)
    if is_unit_root(place.tree, place.root):
        return verify_units_at(place, as_json=as_json)
    log = None
    if sink is not None:
        sink_place = checkpoint_place(session, sink)
        log = SinkLog(sink_place.tree, sink_place.root)
    verdict = verify(Inspection(place.tree, read_layout(place.tree, place.root)), batch, log)
    for line in (
        [msgspec.json.encode(verdict).decode()] if as_json else _verdict_lines(verdict, local=not place.owner)
    ):
        print_line(line)
    return exit_status(verdict)


def exit_status(verdict: Verdict) -> int:
    """Return the exit status of `verify`, as listed at the top of this module."""
    if not any(finding.stops for finding in verdict.findings):
        return 3 if verdict.findings else 0
    return 5 if verdict.last_good is None and verdict.repair is None else 4


def _summary(place: CheckpointPlace, root: str) -> CheckpointSummary:
    return summarise(Inspection(place.tree, read_layout(place.tree, root)))


# -- text ------------------------------------------------------------------------------------------


def _row(summary: CheckpointSummary) -> tuple[str, ...]:
    return (
        _number(summary.committed),
        _number(summary.planned),
        str(len(summary.operators)),
        str(summary.files),
        human_size(summary.bytes),
        local_minute(summary.modified_ms),
        summary.query or "-",
        summary.root,
    )


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _table(rows: Sequence[Sequence[str]], numbers: int) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if column < numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _description(summary: CheckpointSummary, made: Sequence[RepartitionSummary]) -> Iterator[str]:
    rows = [
        ("Checkpoint", summary.root),
        ("Query", summary.query or "unknown: metadata is missing or damaged"),
        ("Last batch done", _number(summary.committed)),
        ("Last batch planned", _number(summary.planned)),
        ("Oldest batch kept", _number(summary.oldest)),
        ("State format", _number(summary.format)),
        ("Watermark", utc_second(summary.watermark_ms) + " UTC" if summary.watermark_ms else "-"),
        ("Last batches took", ", ".join(f"{ms} ms" for ms in summary.durations_ms) or "-"),
        ("Files", f"{summary.files} ({human_size(summary.bytes)})"),
        ("Temporary files", str(summary.temporary_files)),
        ("Foreign files", str(summary.foreign_files)),
        ("Last write", f"{local_minute(summary.modified_ms)} ({_age(summary.modified_ms)} ago)"),
        *ancestry_rows(summary.ancestry),
    ]
    for each in made:
        left = "" if each.done else "; not finished: `repartition` finishes it, `repair` undoes it"
        rows.append(("Repartition", f"batch {each.batch}, to {each.partitions} partitions{left}"))
    for source in summary.sources:
        rows.append((f"Source {source.source}", source.offset or "-"))
    for operator in summary.operators:
        stores = ", ".join(operator.stores)
        rows.append(
            (
                f"Operator {operator.operator}",
                f"{operator.name or 'unknown'}: {operator.partitions} partitions of {stores}; "
                f"{operator.files} files ({human_size(operator.bytes)})",
            )
        )
    width = max(len(name) for name, _ in rows) + 1
    for name, value in rows:
        yield f"{name + ':':<{width}} {value}"


def _store_line(store: StoreSummary) -> str:
    return (
        f"  {store.operator}/{store.partition}/{store.store}: {human_size(store.bytes)}; "
        f"snapshots {_newest(store.snapshots)}; changelogs {_newest(store.changes)}"
    )


def _newest(versions: Sequence[str]) -> str:
    shown = ", ".join(versions[-_VERSIONS_SHOWN:]) or "none"
    return f"… {shown}" if len(versions) > _VERSIONS_SHOWN else shown


def _age(modified_ms: int) -> str:
    seconds = max(0, int(time.time() - modified_ms / 1000))
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def _verdict_lines(verdict: Verdict, *, local: bool) -> Iterator[str]:
    for finding in verdict.findings:
        effect = "" if finding.noticed else " (Spark does not notice, and reads it as it is)"
        effect = effect if finding.stops else " (a restart survives it)"
        yield f"{finding.fault}: {finding.path}: {finding.reason}{effect}"
    by_reason: dict[str, list[str]] = {}
    for note in verdict.notes:
        by_reason.setdefault(note.reason, []).append(note.path)
    for reason, (path, *others) in by_reason.items():
        yield f"note: {path}{f' and {len(others)} more' if others else ''}: {reason}"
    yield from _start_lines(verdict)
    read = f"{verdict.files_read} files read, {human_size(verdict.bytes_read)}"
    yield f"{verdict.root}: {_conclusion(verdict, local=local)}; {read}"


def _start_lines(verdict: Verdict) -> Iterator[str]:
    """Yield a line per way to start; none if only an ordinary start applies."""
    ordinary, tracked, real_time = verdict.starts
    if real_time.starts or (tracked.starts and not ordinary.starts):
        for start in verdict.starts:
            yield f"{_STARTS[StartMode(start.mode)]}: {_start(start)}"
    if verdict.mode == StartMode.ASYNC_PROGRESS and tracked.starts and verdict.batch == verdict.committed:
        assert verdict.planned is not None
        yield (
            "before an ordinary start: start it with asyncProgressTrackingEnabled and "
            f"asyncProgressTrackingCheckpointIntervalMs=0, and stop it once batch {verdict.planned + 1} is done"
        )


def _start(start: StartVerdict) -> str:
    if not start.starts:
        return f"no: {start.against[0]}"
    if start.repeats:
        return f"batch {start.goes_on_with} is repeated"
    return f"goes on with batch {start.goes_on_with}"


def _conclusion(verdict: Verdict, *, local: bool) -> str:
    stops = {finding.fault for finding in verdict.findings if finding.stops}
    if verdict.batch is None:
        if stops:
            return f"no batch is said to be done, and a query cannot start{_way_out(verdict, local=local)}"
        start = f"; batch {verdict.goes_on_with} is repeated" if verdict.goes_on_with == verdict.planned else ""
        return f"no batch is said to be done{start}"
    if not stops:
        again = f", and batch {verdict.goes_on_with} is repeated" if _repeats(verdict) else ""
        only = " with asynchronous progress tracking" if verdict.mode == StartMode.ASYNC_PROGRESS else ""
        return f"batch {verdict.batch} is good{only}{again}"
    if stops == {Fault.TOO_NEW}:
        last = "" if verdict.last_good is None else f"; the last good one is {verdict.last_good}"
        return f"batch {verdict.batch} cannot be judged: a newer Spark wrote it than this program knows{last}"
    if verdict.batch != verdict.committed:
        last = "no earlier one is good" if verdict.last_good is None else f"{verdict.last_good} is good before it"
        return f"a rollback to batch {verdict.batch} is not possible; {last}"
    unnoticed = not any(finding.stops and finding.noticed for finding in verdict.findings)
    start = "a query would start, and not from what was written" if unnoticed else "a query cannot start from it"
    return f"{start}{_way_out(verdict, local=local)}"


def _repeats(verdict: Verdict) -> bool:
    """Return whether a start begins with a batch that was planned already."""
    return verdict.batch == verdict.committed and verdict.goes_on_with == verdict.planned


def _way_out(verdict: Verdict, *, local: bool) -> str:
    """Name what helps. A `local` checkpoint must be brought to a cluster for a rollback."""
    ways = []
    if verdict.repair is not None:
        ways.append(f"`peacefs checkpoint repair` removes {verdict.repair.files}: {verdict.repair.reason}")
    if verdict.last_good is not None:
        where = ", in a cluster: `export` and `import` bring it there," if local else ""
        ways.append(f"`peacefs checkpoint rollback --to-batch {verdict.last_good}`{where} helps")
    return "; " + "; or ".join(ways) if ways else "; no batch is good"
