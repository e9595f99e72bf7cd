"""`peacefs checkpoint ls`, `show` and `verify` of a dataflow's units, and of programs with paged state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import human_size, local_minute
from peacefs.spark_connector.checkpoints.places import CheckpointPlace
from peacefs.spark_connector.checkpoints.unit_checkpoints import (
    UnitSummary,
    UnitVerdict,
    summarise_units,
    verify_units,
)

HEADINGS = ("SEQUENCE", "STORED", "PAGES", "STATE", "FILES", "LAST WRITE", "QUERY", "UNIT", "PATH")
#: The leading columns are numbers.
NUMBERS = 5


def unit_row(summary: UnitSummary) -> tuple[str, ...]:
    return (
        "-" if summary.sequence is None else str(summary.sequence),
        str(len(summary.sequences)),
        str(summary.pages),
        human_size(summary.state_bytes),
        str(summary.files),
        local_minute(summary.modified_ms) if summary.modified_ms else "-",
        summary.query or "-",
        summary.unit,
        summary.root,
    )


def show_units(place: CheckpointPlace, *, as_json: bool) -> None:
    """Print everything known of each unit."""
    for summary in summarise_units(place.tree, place.root):
        if as_json:
            print_line(msgspec.json.encode(summary).decode())
        else:
            for line in _description(summary):
                print_line(line)


def _description(summary: UnitSummary) -> Iterator[str]:
    recorded = summary.recorded
    rows = [
        ("Unit", summary.unit),
        ("Query", _query(summary)),
        ("Begins with checkpoint", "none" if summary.sequence is None else str(summary.sequence)),
        ("Checkpoints there", ", ".join(map(str, summary.sequences)) or "none"),
        ("State", f"{summary.pages} pages of {human_size(summary.page_bytes)}: {human_size(summary.state_bytes)}"),
        ("Page sets", ", ".join(summary.page_sets) or "-"),
        ("Pages lie in checkpoints", ", ".join(map(str, summary.generations)) or "-"),
        ("Files", f"{summary.files} ({human_size(summary.bytes)})"),
    ]
    if recorded is not None:
        written = f"{recorded.pages_written} pages ({human_size(recorded.bytes_written)})"
        rows += [
            ("Started", f"{recorded.incarnation} times"),
            ("Last checkpoint", f"wrote {written}, referred to {recorded.pages_referred}"),
            ("Pause", f"{recorded.pause_us / 1000:.2f} ms"),
            ("Recorded", local_minute(recorded.recorded_ms)),
        ]
    width = max(len(name) for name, _ in rows) + 1
    for name, value in rows:
        yield f"{name + ':':<{width}} {value}"


def _query(summary: UnitSummary) -> str:
    return f"{summary.query} ({summary.technique})" if summary.query else "none: a program with paged state"


def verify_units_at(place: CheckpointPlace, *, as_json: bool) -> int:
    """Print the faults of each unit's checkpoint; return the exit status of `verify`."""
    verdicts = verify_units(place.tree, place.root)
    for verdict in verdicts:
        print_line(msgspec.json.encode(verdict).decode() if as_json else _line(verdict))
    return _status(verdicts)


def _status(verdicts: Sequence[UnitVerdict]) -> int:
    damaged = [verdict for verdict in verdicts if verdict.reason is not None]
    if not damaged:
        return 0
    return 4 if all(verdict.last_sound is not None for verdict in damaged) else 5


def _line(verdict: UnitVerdict) -> str:
    if verdict.sequence is None:
        return f"unit {verdict.unit}: no checkpoint is recorded, it begins with nothing"
    if verdict.reason is None:
        return f"unit {verdict.unit}: checkpoint {verdict.sequence} is whole; {verdict.pages_read} pages read"
    other = "no other" if verdict.last_sound is None else f"checkpoint {verdict.last_sound}"
    return f"unit {verdict.unit}: checkpoint {verdict.sequence} is damaged: {verdict.reason}; {other} is sound"
