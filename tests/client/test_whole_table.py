"""Tables of numbers are readable in files and pipes, too, which have no width."""

from __future__ import annotations

import pytest
from rich.table import Table

from peacefs.client.command_line.whole_table import print_whole


def test_table_is_whole_however_narrow_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("technique", "overhead, %")
    cells = "upstream backup, precise, " * 4, "100.96"
    table.add_row(*cells)
    print_whole(table)
    shown = capsys.readouterr().out
    assert all(cell in shown for cell in cells) and "…" not in shown
