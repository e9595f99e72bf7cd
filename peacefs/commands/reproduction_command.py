"""`peacefs simulate ha-...`: HA's tables and figures in virtual time, as a table, JSON and a picture."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from peacefs.client.command_line.progress import run_progress
from peacefs.client.command_line.whole_table import print_whole
from peacefs.protocol.errors import Unsupported

if TYPE_CHECKING:
    from rich.table import Table

    from peacefs.dataflow.reproductions.ha_results import TableRow

#: A cell of ours that differs more from the paper's is marked.
_FAR = 0.2


def run_reproduction(name: str, runs: int | None, *, as_json: bool, picture: Path | None) -> None:
    """Raises Unsupported, before anything is simulated, where an extra is missing."""
    if picture is not None:
        from .comparison_picture import require_matplotlib

        require_matplotlib()
    try:
        from peacefs.dataflow.reproductions.ha_results import RUNS, cells, run_result
    except ImportError as error:
        raise Unsupported(f"HA's results need {error.name}: install peacefs[dataflow]") from None
    runs = RUNS if runs is None else runs
    with run_progress(name, len(cells(name)) * runs) as on_run:
        rows = run_result(name, runs, on_run)
    if as_json:
        lines = ",\n ".join(json.dumps(dataclasses.asdict(row)) for row in rows)
        sys.stdout.write(f"[{lines}]\n")
    else:
        print_whole(_table(name, runs, rows))
    if picture is not None:
        from .reproduction_picture import draw

        draw(rows, name, picture)


def _table(name: str, runs: int, rows: Sequence[TableRow]) -> Table:
    from rich import box
    from rich.table import Table

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
