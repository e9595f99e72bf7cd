"""HA's Tables 6 to 8 and Figures 6 and 7 in virtual time: a table, JSON and a picture for each.

    python -m benchmarks ha_table6 [--runs N]      also ha_table7, ha_table8, ha_figure6, ha_figure7

Each cell is the mean of N runs, by default as many as in the paper, 25.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.util import find_spec

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import save
from benchmarks.state_pictures import draw

from .ha_pictures import drawn
from .ha_results import RUNS, TableRow, run_result

#: One of our cells is marked if it differs from the paper's by more than this.
_FAR = 0.2


def main(*, result: str, quick: bool = False, runs: int | None = None) -> None:
    """Run the cells of one table or figure, named as in `RESULTS`."""
    runs = runs if runs is not None else 1 if quick else RUNS
    rows = run_result(result, runs)
    Console(width=140).print(_table(result, runs, rows))
    save(result, [dataclasses.asdict(row) for row in rows])
    draw(result, drawn(rows, result) if find_spec("matplotlib") else None)


def _table(name: str, runs: int, rows: Sequence[TableRow]) -> Table:
    table = Table(
        title=f"{name}: means over {runs} run{'s' if runs != 1 else ''}; * differs by more than a fifth from HA's",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    headings = ("", "", "recovery\nms, HA", "\nours", "closed\nform", "overhead\n%, HA", "\nours", "closed\nform")
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at < 2 else "right", no_wrap=True)
    last = None
    for row in rows:
        if last not in (None, row.case):
            table.add_section()
        last = row.case
        table.add_row(
            row.case,
            row.approach,
            _paper(row.paper_recovery_ms),
            _ours(row.recovery_ms, row.paper_recovery_ms),
            f"{row.closed_recovery_ms:.2f}",
            _paper(row.paper_bandwidth),
            _ours(row.bandwidth, row.paper_bandwidth),
            f"{row.closed_bandwidth:.2f}",
        )
    return table


def is_far(ours: float, paper: float | None) -> bool:
    """Return whether a number differs by more than a fifth from the paper's."""
    return paper is not None and abs(ours - paper) > _FAR * paper


def _paper(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _ours(number: float, paper: float | None) -> str:
    return f"{number:.2f}{'*' if is_far(number, paper) else ' '}"
