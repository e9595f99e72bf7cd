"""The page of verdicts in the documentation: written by the whole ordeal, read by the share that is always run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .restarted_query import LAYOUTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "checkpoint-verdicts.md"
QUERIES = [*LAYOUTS, "copy", "join"]
_HEAD = """# What a harmed checkpoint comes to

Each cell is what `peacefs checkpoint verify` says of a real checkpoint with one file harmed, and what
Spark {versions} then did: queries were started on it and, where a repair or a rollback was named, on copies that
were repaired or rolled back. Every batch had the rows that it has without the harm. `PEACEFS_VERDICTS=write`
writes this page (`tests/spark/checkpoints/test_verdicts.py`); a share of it is held against Spark whenever the
tests run.

| | |
| --- | --- |
| starts | with the next batch |
| starts, repeats a batch | the one that was planned, or whose commit is gone, with the rows that it had |
| fails; repair | Spark fails; `peacefs checkpoint repair` makes it start |
| fails; rollback | Spark fails; a rollback makes it start |
| goes unnoticed; ... | the file differs from its checksum file; Spark does not look, and takes it as it is |
| fails; lost | Spark fails, and neither helps |

A letter that is another in a text file without a checksum file beside it cannot be seen; on peacefs every read is
verified.
"""
_STATES = {"done": "All batches are done", "planned": "A batch is planned and not done"}


class Case(NamedTuple):
    """`state` is `done` or `planned`."""

    state: str
    query: str
    kind: str
    harm: str


def render(versions: str, harms: list[str], cells: dict[Case, str]) -> str:
    """The page. Queries whose rows are alike share one."""
    parts = [_HEAD.format(versions=versions)]
    for state, title in _STATES.items():
        parts.append(f"\n## {title}\n")
        parts.append(_row(["file", "queries", *harms]))
        parts.append(_row(["---"] * (len(harms) + 2)))
        kinds = dict.fromkeys(case.kind for case in cells if case.state == state)
        for kind in kinds:
            alike: dict[tuple[str, ...], list[str]] = {}
            for query in QUERIES:
                row = tuple(cells.get(Case(state, query, kind, harm), "") for harm in harms)
                if any(row):
                    alike.setdefault(row, []).append(query)
            parts += [_row([kind, ", ".join(queries), *row]) for row, queries in alike.items()]
    return "\n".join(parts) + "\n"


def read(text: str) -> dict[Case, str]:
    """The cells of a page."""
    cells: dict[Case, str] = {}
    titles = {title: state for state, title in _STATES.items()}
    state, harms = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            state = titles[line.removeprefix("## ")]
        elif state and line.startswith("| "):
            kind, queries, *row = [cell.strip() for cell in line.strip("|").split("|")]
            if kind == "file":
                harms = row
            elif kind != "---":
                for query in queries.split(", "):
                    found = zip(harms, row, strict=True)
                    cells |= {Case(state, query, kind, harm): said for harm, said in found if said}
    return cells


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
