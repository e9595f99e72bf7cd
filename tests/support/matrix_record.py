"""Keep the outcomes of the checkpoint matrix on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from oracles.checkpoint_matrix import EVENTS, KINDS, Cell, Version, cells

from .matrix_run import Report


def due(
    version: Version, older: Version | None, layouts: list[str] | None, events: list[str]
) -> set[tuple[Cell, str]]:
    """Return every event of every cell that a Spark has. `older` is the Spark before, for `upgraded`."""
    inherited = cells(older, layouts) if older else []
    return {
        (cell, event)
        for cell in cells(version, layouts)
        for event in events
        if EVENTS[event].since <= version
        and (KINDS[cell.kind].stateful or not EVENTS[event].stateful)
        and (event != "upgraded" or cell in inherited)
    }


class MatrixRecord:
    """A directory with a JSON file for each Spark and layout. The first outcome of an event stays.

    Delete a file to run its cells again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, report: Report, layout: str) -> None:
        path = self._directory / f"{report.spark} {layout.replace(',', '')}.json".replace(" ", "-")
        kept = self._load(path) if path.exists() else Report(report.spark)
        kept.outcomes = report.outcomes | kept.outcomes
        kept.moments += report.moments
        rows = [[cell.kind, cell.layout, event, outcome] for (cell, event), outcome in kept.outcomes.items()]
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(
            json.dumps({"spark": kept.spark, "outcomes": rows, "moments": kept.moments}, indent=1)
        )
        unfinished.replace(path)

    def reports(self) -> list[Report]:
        """Return a report for each Spark, oldest first."""
        found: dict[str, Report] = {}
        for path in sorted(self._directory.glob("*.json")):
            part = self._load(path)
            whole = found.setdefault(part.spark, Report(part.spark))
            whole.outcomes |= part.outcomes
            whole.moments += part.moments
        return sorted(found.values(), key=lambda report: report.version)

    def lacks(self, spark: str, asked: set[tuple[Cell, str]]) -> bool:
        return bool(
            asked - {made for report in self.reports() if report.spark == spark for made in report.outcomes}
        )

    def _load(self, path: Path) -> Report:
        said = json.loads(path.read_text())
        outcomes = {(Cell(kind, layout), event): outcome for kind, layout, event, outcome in said["outcomes"]}
        return Report(said["spark"], outcomes, Counter(said["moments"]))


def missing(reports: list[Report]) -> Iterator[tuple[Report, set[tuple[Cell, str]]]]:
    """Yield what each Spark has not run."""
    older: Version | None = None
    for report in reports:
        yield report, due(report.version, older, None, list(EVENTS)) - set(report.outcomes)
        older = report.version
