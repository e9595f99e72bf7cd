"""The limit on a directory's entries cannot be bypassed, and the count stays right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import DirectoryFull, FileAlreadyExists

from .conftest import Space

FULL: dict[str, Callable[[Space], Any]] = {
    "mkdirs": lambda space: space.mkdirs("/full/new"),
    "mkdirs with parents": lambda space: space.mkdirs("/full/new/below"),
    "create": lambda space: space.create("/full/new", 1),
    "create with parents": lambda space: space.create("/full/new/below", 1),
    "rename": lambda space: space.rename("/other", "/full/new"),
    "copy": lambda space: space.copy("/other", "/full/new"),
}


@pytest.fixture(name="full")
def _full(space: Space, monkeypatch: pytest.MonkeyPatch) -> Space:
    """Make /full with five entries, which is its limit."""
    for module in ("metadata.transaction", "namespace.resolution"):
        monkeypatch.setattr(f"peacefs.coordinator.{module}.directory_entries_max", 5)
    space.create_many([f"/full/{number}" for number in range(5)])
    space.create("/other", 1)
    return space


@pytest.mark.parametrize("what", FULL)
def test_a_full_directory_takes_no_more_until_something_goes(full: Space, what: str) -> None:
    words = r"The directory item limit of /full is exceeded: limit=5 items=5"
    for _ in range(2):
        with pytest.raises(DirectoryFull, match=words):
            FULL[what](full)
    full.delete("/full/3")
    FULL[what](full)
    assert len(full.names("/full")) == 5
    with pytest.raises(DirectoryFull, match=words):
        full.mkdirs("/full/another")


def test_full_directory_allows_what_adds_no_entry(full: Space) -> None:
    full.create("/full/1", 5, overwrite=True)
    full.rename("/full/1", "/full/one")
    full.rename("/other", "/full/2", RenameMode.OVERWRITE)
    full.append("/full/one", 1)
    assert full.names("/full") == ["0", "2", "3", "4", "one"]


def test_entries_refused_or_undone_are_not_counted(full: Space) -> None:
    """The third of a batch fails after it has made a directory; the others' changes stay counted."""
    full.delete("/full/0")
    full.delete("/full/1")

    def fails(tx: Any) -> None:
        namespace.mkdirs(tx, parse_path("/full/b"), "ann", 0o755, 1)
        namespace.mkdirs(tx, parse_path("/other"), "ann", 0o755, 1)

    requests: list[Callable[[Any], Any]] = [
        lambda tx: namespace.mkdirs(tx, parse_path("/full/a"), "ann", 0o755, 1),
        fails,
        lambda tx: namespace.mkdirs(tx, parse_path("/full/c"), "ann", 0o755, 1),
        lambda tx: namespace.mkdirs(tx, parse_path("/full/d"), "ann", 0o755, 1),
    ]
    outcomes = full.metadata.commit(requests)
    errors = [type(outcome.error) for outcome in outcomes]
    assert errors == [type(None), FileAlreadyExists, type(None), DirectoryFull]
    assert full.names("/full") == ["2", "3", "4", "a", "c"]


def test_a_full_directory_is_counted_once(full: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DirectoryFull):
        full.mkdirs("/full/a")

    def no_count(*_: object) -> int:
        raise AssertionError("counted again")

    monkeypatch.setattr(type(full.metadata._transaction), "count_children", no_count)
    with pytest.raises(DirectoryFull):
        full.mkdirs("/full/a")
    full.delete("/full/1")
    full.mkdirs("/full/a")
