"""Every promise of the threat model has a test, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PAGE = (_ROOT / "docs" / "security.md").read_text()
_TABLE = _PAGE.partition("| who | reaches |")[2].partition("\n\n")[0]
_ROWS = [line for line in _TABLE.splitlines()[2:] if line.startswith("| ")]
_TESTS = {
    name
    for path in (_ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)\(", path.read_text())
}
#: The actors that the page must describe.
_ACTORS = (
    "a stranger on the network",
    "a user with a token",
    "a user of the same machine",
    "a service that may act for others",
    "an administrator",
    "a datanode with a valid credential",
    "a supervised query",
    "a web page in somebody's browser",
)


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.split("|")[3].strip()[:40])
def test_security_promise_names_tests_that_exist(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 5 and all(cells[1:]), "who, reaches, could, what is promised, tests"
    tests = set(re.findall(r"`(test_\w+)`", cells[4]))
    assert tests, "a promise without a test"
    assert tests <= _TESTS, f"no such tests: {sorted(tests - _TESTS)}"


def test_security_page_speaks_of_everybody() -> None:
    told = [row.split("|")[1].strip() for row in _ROWS]
    assert [who for who in told if who] == list(_ACTORS)
