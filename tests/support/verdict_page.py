"""The page of verdicts in the documentation: written by the whole ordeal, read by the share that is always run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .restarted_query import LAYOUTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "checkpoint-verdicts.md"
QUERIES = [*LAYOUTS, "copy", "join"]
_HEAD = """# Verdicts on harmed checkpoints

Can a query start if a file of its checkpoint is harmed, and what helps? Each cell is the verdict of `peacefs
checkpoint verify` on a real checkpoint with one harmed file. Spark {installed} then did the same: queries were
started on the checkpoint and on copies that were repaired or rolled back, and every batch had the rows that it
has without the harm. `PEACEFS_VERDICTS=write` writes this page (`tests/spark/checkpoints/test_verdicts.py`);
the tests always compare a part of it with Spark.
{others}
| | |
| --- | --- |
| starts | with the next batch |
| starts, repeats a batch | the planned batch, or the one whose commit is gone, with the same rows |
| fails; repair | Spark fails; `peacefs checkpoint repair` makes it start |
| fails; rollback | Spark fails; a rollback makes it start |
| goes unnoticed; ... | the file differs from its checksum file; Spark does not check, and uses it |
| fails; lost | Spark fails, and neither helps |

A changed letter in a text file without a checksum file cannot be noticed; on peacefs every read is verified.
"""
_OTHER = """
Spark {other} was tested with checkpoints of its own, for the queries that its tables name. They show only the
rows that differ. It has neither format 2 nor metadata of operators.
"""
_STATES = {"done": "All batches are done", "planned": "A batch is planned and not done"}
_ABSENT = "no such file"
_RAN = "Queries: "
#: Joins the harms that share a column.
_TOGETHER = " / "
_INSTALLED = re.compile(r"Spark (\S+) then did the same")


class Case(NamedTuple):
    """A kind of checkpoint. `state` is `done` or `planned`."""

    state: str
    query: str
    kind: str
    harm: str


Cells = dict[Case, str]


@dataclass(slots=True)
class VerdictPage:
    """The cells of the page by Spark version. Versions other than `installed` are shown where they differ."""

    installed: str
    harms: list[str]
    cells: dict[str, Cells] = field(default_factory=dict)

    def put(self, version: str, query: str, cells: Cells) -> None:
        """Set a query's cells for a version of Spark."""
        kept = {case: said for case, said in self.cells.get(version, {}).items() if case.query != query}
        self.cells[version] = dict(sorted((kept | cells).items(), key=lambda cell: QUERIES.index(cell[0].query)))

    def render(self) -> str:
        """Render the page. Queries with equal rows share one."""
        own = self.cells[self.installed]
        others = {version: cells for version, cells in self.cells.items() if version != self.installed}
        told = "".join(_OTHER.format(other=version) for version in others)
        parts = [_HEAD.format(installed=self.installed, others=told)]
        for state, title in _STATES.items():
            parts += [f"\n## {title}\n", *self._table(state, own, None)]
        for version, cells in others.items():
            for state, title in _STATES.items():
                ran = {case.query for case in cells if case.state == state}
                queries = [query for query in QUERIES if query in ran]
                parts.append(f"\n## {title}: Spark {version}\n\n{_RAN}{', '.join(queries)}\n")
                parts += self._table(state, cells, known_to(version, own, state, queries))
        return "\n".join(parts) + "\n"

    def _table(self, state: str, cells: Cells, apart_from: Cells | None) -> list[str]:
        rows: list[tuple[str, list[str], tuple[str, ...]]] = []
        for kind in dict.fromkeys(case.kind for case in {**(apart_from or {}), **cells} if case.state == state):
            alike: dict[tuple[str, ...], list[str]] = {}
            for query in QUERIES:
                cases = [Case(state, query, kind, harm) for harm in self.harms]
                row = tuple(cells.get(case, "") for case in cases)
                if apart_from is not None:
                    before = tuple(apart_from.get(case, "") for case in cases)
                    if row == before:
                        continue
                    row = tuple(said or _ABSENT * bool(other) for said, other in zip(row, before, strict=True))
                if any(row):
                    alike.setdefault(row, []).append(query)
            rows += [(kind, queries, row) for row, queries in alike.items()]
        # Adjacent harms with equal cells in all rows share a column.
        starts = [
            number
            for number in range(len(self.harms))
            if number == 0 or any(row[number] != row[number - 1] for _, _, row in rows)
        ]
        ends = [*starts[1:], len(self.harms)]
        heads = [_TOGETHER.join(self.harms[start:end]) for start, end in zip(starts, ends, strict=True)]
        lines = [_row(["file", "queries", *heads]), _row(["---"] * (len(heads) + 2))]
        lines += [
            _row([kind, ", ".join(queries), *(row[start] for start in starts)]) for kind, queries, row in rows
        ]
        return lines


def known_to(version: str, cells: Cells, state: str, queries: list[str]) -> Cells:
    """Return the cells of a state that a version of Spark can have, if it ran these queries."""
    return {
        case: said
        for case, said in cells.items()
        if case.state == state and case.query in queries and knows(version, case.query, case.kind)
    }


def knows(version: str, query: str, kind: str = "") -> bool:
    """Return whether a version of Spark supports such queries and files."""
    return not version.startswith("3.") or (query != "rocksdb format 2" and kind != "operator's metadata")


def read_page(text: str) -> VerdictPage:
    (installed,) = _INSTALLED.findall(text)
    page = VerdictPage(installed, [], {installed: {}})
    titles = {title: state for state, title in _STATES.items()}
    state, version = "", installed
    columns: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("## "):
            title, _, other = line.removeprefix("## ").partition(": Spark ")
            state, version = titles[title], other or installed
        elif line.startswith(_RAN) and state:
            queries = line.removeprefix(_RAN).split(", ")
            told = page.cells.setdefault(version, {})
            told |= known_to(version, page.cells[installed], state, queries)
        elif state and line.startswith("| "):
            kind, alike, *row = [cell.strip() for cell in line.strip("|").split("|")]
            if kind == "file":
                columns = [head.split(_TOGETHER) for head in row]
                page.harms = [harm for together in columns for harm in together]
            elif kind != "---":
                row = [said for said, together in zip(row, columns, strict=True) for _ in together]
                for query in alike.split(", "):
                    _take(page, version, [Case(state, query, kind, harm) for harm in page.harms], row)
    return page


def _take(page: VerdictPage, version: str, cases: list[Case], row: list[str]) -> None:
    cells = page.cells[version]
    for case, said in zip(cases, row, strict=True):
        if said == _ABSENT:
            del cells[case]
        elif said:
            cells[case] = said


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
