"""Print tables of which no cell is cut, however narrow the terminal or the file is said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .presentation import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

#: The width that a terminal has at least.
_CHARACTERS = 80
#: A table of more is cut: its cells have limits of their own.
_CHARACTERS_MAX = 20_000


def print_whole(*shown: RenderableType) -> None:
    """Print tables, and lines of text between them."""
    console = plain_console()
    for each in shown:
        options = console.options.update(width=_CHARACTERS_MAX)
        # A console prints nothing that is wider than itself.
        console.width = max(console.width, _CHARACTERS, console.measure(each, options=options).maximum)
        console.print(each)


def plain_console() -> Console:
    """A console that takes names for what they are: no markup, no colours, no emoji."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def add_row(table: Table, *cells: str) -> None:
    """Add a row whose cells are shown as they are, with control characters escaped."""
    table.add_row(*(_cell(cell) for cell in cells))


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))
