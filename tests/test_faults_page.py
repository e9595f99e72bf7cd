"""The page of invariants and faults links each entry to tests with its marker, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.evidence import PAGE, evidence, page

_ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (Path(__file__).parent.parent / "docs" / "faults.md").read_text().splitlines()
    if line.startswith("| [")
]
_LINK = re.compile(r"\[[^]]+\]\(faults-tests\.md#([a-z0-9-]+)\)")


def _about(row: list[str]) -> str:
    found = _LINK.fullmatch(row[0])
    assert found, f"{row[0]} links to no tests"
    return found[1]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: _about(row))
def test_row_of_the_page_has_tests_and_full_columns(row: list[str]) -> None:
    assert evidence()[_about(row)]
    assert len(row) in (2, 3) and all(row)


def test_markers_name_rows_of_the_page() -> None:
    assert sorted(evidence()) == sorted(_about(row) for row in _ROWS)


def test_page_of_tests_is_what_the_markers_say() -> None:
    assert PAGE.read_text() == page(), "run `python tests/support/evidence.py`"


def test_page_has_rows() -> None:
    assert len(_ROWS) > 60
