"""Prints tables without cutting any cell, however narrow the terminal is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .presentation import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

#: Minimum width that is assumed for a terminal.
_CHARACTERS = 80
#: Maximum width of a table. Cells have limits of their own.
_CHARACTERS_MAX = 20_000


def print_whole(*shown: RenderableType) -> None:
    """Print tables and lines of text."""
    console = plain_console()
    for each in shown:
        options = console.options.update(width=_CHARACTERS_MAX)
        # A console prints nothing wider than itself.
        console.width = max(console.width, _CHARACTERS, console.measure(each, options=options).maximum)
        console.print(each)


def plain_console() -> Console:
    """Return a console that prints names literally: no markup, no colours, no emoji."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def add_row(table: Table, *cells: str) -> None:
    """Add a row of literal cells, with control characters escaped."""
    table.add_row(*(_cell(cell) for cell in cells))


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))
