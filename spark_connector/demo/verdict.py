"""Print a demo's table of results, and whether its rows equal the batch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

_DIFFERENCES_SHOWN = 20


def print_table(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns, without a frame."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in lines:
        table.add_row(name, value)
    console.print(table)


def print_verdict(console: Console, whose: str, rows: int, differences: Sequence[str]) -> None:
    """Print that the rows equal the batch's, or else the first differences."""
    if not differences:
        console.print(f"{whose} {rows:,} rows equal the batch's, row for row.", style="bold green")
        return
    console.print(f"{whose} rows differ from the batch's in {len(differences):,}:", style="bold red")
    for line in differences[:_DIFFERENCES_SHOWN]:
        console.print(f"  {line}")
    if len(differences) > _DIFFERENCES_SHOWN:
        console.print("  ...")
