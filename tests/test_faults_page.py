"""The page of invariants and faults names only what there is, and a test for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PAGE = (_ROOT / "docs" / "faults.md").read_text()
_ROWS = [
    line for line in _PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| fault |"))
]
_TESTS = {
    name
    for path in (_ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)\(", path.read_text())
}


@pytest.mark.parametrize("row", _ROWS[1:], ids=lambda row: row.split("|")[1].strip()[:40])
def test_what_a_row_names_exists_and_it_names_a_test(row: str) -> None:
    named = re.findall(r"`([^`]+)`", row)
    tests = {name for name in named if name.startswith("test_")}
    assert tests, "a row without a test"
    assert tests <= _TESTS, f"no such tests: {sorted(tests - _TESTS)}"
    files = [name for name in named if name.endswith(".py")]
    assert [name for name in files if not (_ROOT / name).exists()] == []


def test_there_are_rows() -> None:
    assert len(_ROWS) > 25
