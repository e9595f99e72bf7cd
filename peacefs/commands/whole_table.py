"""Print tables of which no cell is cut, however narrow the terminal or the file is said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

#: The width that a terminal has at least.
_CHARACTERS = 80
_CHARACTERS_MAX = 400


def print_whole(table: Table) -> None:
    from rich.console import Console

    console = Console()
    wanted = console.measure(table, options=console.options.update(width=_CHARACTERS_MAX)).maximum
    # A console prints nothing that is wider than itself.
    console.width = max(console.width, _CHARACTERS, wanted)
    console.print(table)
