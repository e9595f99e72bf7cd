"""`--help` of every group fits a terminal of 80 columns: no summary is cut."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from peacefs.command import application

_GROUPS = sorted(group.name for group in application.registered_groups if isinstance(group.name, str))


@pytest.mark.parametrize("group", ["", *_GROUPS])
def test_help_shows_every_summary_whole(group: str) -> None:
    shown = CliRunner().invoke(application, [*group.split(), "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    cut = [line for line in shown.output.splitlines() if line.endswith("...") and "[ARGS]" not in line]
    assert cut == []


def test_help_covers_the_groups_that_there_are() -> None:
    assert {"checkpoint", "metadata", "datanodes"} <= set(_GROUPS)
    assert isinstance(application, typer.Typer)
