"""What a snapshot will need: superseded rows are retired while one shows them, and deleted otherwise.

There are no operations on snapshots yet; the row that one will be is written by hand here.
"""

from __future__ import annotations

import pytest

from peacefs.coordinator import namespace
from peacefs.coordinator.metadata import ROOT
from peacefs.coordinator.paths import parse_path

from .conftest import Space


def take_snapshot(space: Space) -> int:
    """Of the root, as of the last transaction."""
    at_tx = int(space.sql("SELECT value FROM meta WHERE key = 'last_tx'")[0][0])
    space.sql("INSERT INTO snapshot VALUES (?, ?, ?, 0)", (ROOT, f"at-{at_tx}", at_tx))
    return at_tx


def tree_at(space: Space, at_tx: int, directory: int = ROOT, path: str = "") -> dict[str, tuple[int, int, int]]:
    """What a snapshot shows: path -> (mode, time of modification, sum of the chunks' lengths)."""
    valid = "from_tx <= ? AND to_tx > ?"
    found: dict[str, tuple[int, int, int]] = {}
    for name, inode in space.sql(
        f"SELECT name, inode FROM entry WHERE parent = ? AND {valid}", (directory, at_tx, at_tx)
    ):
        ((kind, *shown, length),) = space.sql(
            f"SELECT kind, permission, modified_ms, length FROM inode WHERE inode = ? AND {valid}",
            (inode, at_tx, at_tx),
        )
        found[f"{path}/{name}"] = (*shown, length)
        if kind:
            found |= tree_at(space, at_tx, inode, f"{path}/{name}")
            continue
        chunks = space.sql(
            "SELECT coalesce(sum(r.length), 0) FROM reference r JOIN chunk USING (chunk) "
            f"WHERE inode = ? AND {valid}",
            (inode, at_tx, at_tx),
        )
        assert chunks == [(length,)], "the snapshot's chunks are there"
    return found


def change_everything(space: Space) -> None:
    space.create("/d/replaced", 8, overwrite=True)
    space.rename("/d/moved", "/elsewhere")
    space.delete("/d/deleted")
    space.commit(lambda tx: namespace.set_permission(tx, parse_path("/d/chmod"), 0o600))
    space.commit(lambda tx: namespace.set_permission(tx, parse_path("/d/chmod"), 0o640))
    space.delete("/tree")
    space.reclaim(limit=3)


@pytest.fixture
def grown(space: Space) -> Space:
    for path in ("/d/replaced", "/d/moved", "/d/deleted", "/d/chmod", *(f"/tree/{n % 3}/{n}" for n in range(9))):
        space.create(path, 3, 4)
    return space


def test_a_snapshot_shows_everything_as_it_was(grown: Space) -> None:
    at_tx = take_snapshot(grown)
    before = tree_at(grown, at_tx)
    assert len(before) == 13 + 5
    change_everything(grown)
    assert tree_at(grown, at_tx) == before
    assert grown.names("/") == ["d", "elsewhere"]
    assert grown.names("/d") == ["chmod", "replaced"]
    assert grown.status("/d/chmod").permission == 0o640
    grown.check_references()


def test_chunks_that_a_snapshot_shows_are_not_freed(grown: Space) -> None:
    take_snapshot(grown)
    assert grown.delete("/d/deleted").freed == []
    assert grown.create("/d/replaced", 8, overwrite=True).freed == []
    grown.create("/d/later", 1)
    assert len(grown.delete("/d/later").freed) == 1, "what came after the snapshot is nothing to it"


def test_each_of_two_snapshots_shows_its_own_state(grown: Space) -> None:
    first = take_snapshot(grown)
    before = tree_at(grown, first)
    grown.create("/d/replaced", 1, overwrite=True)
    grown.commit(lambda tx: namespace.set_permission(tx, parse_path("/d/chmod"), 0o777))
    second = take_snapshot(grown)
    between = tree_at(grown, second)
    assert between != before
    change_everything(grown)
    assert tree_at(grown, first) == before and tree_at(grown, second) == between


def test_a_snapshot_taken_after_a_delete_keeps_nothing_of_what_waits_to_be_reclaimed(grown: Space) -> None:
    grown.delete("/tree")
    take_snapshot(grown)
    assert len(grown.reclaim(limit=4)) == 18
    assert grown.sql("SELECT count(*) FROM entry WHERE to_tx < 9223372036854775807") == [(0,)]


def test_without_a_snapshot_nothing_is_left_behind(grown: Space) -> None:
    change_everything(grown)
    for table in ("inode", "entry", "reference"):
        assert grown.sql(f"SELECT count(*) FROM {table} WHERE to_tx < 9223372036854775807") == [(0,)]


def test_a_snapshot_shows_files_as_long_as_they_were(space: Space) -> None:
    for path in ("/appended", "/cut", "/cut-off", "/target", "/source"):
        space.create(path, 10, 10)
    at_tx = take_snapshot(space)
    before = tree_at(space, at_tx)

    space.append("/appended", 10)
    for length in (15, 12):
        assert space.truncate("/cut", length) == []
    assert space.truncate("/cut-off", 5) == []
    space.concat("/target", "/source")
    now = tree_at(space, 2**62)
    assert {path: length for path, (*_, length) in now.items()} == {
        "/appended": 30,
        "/cut": 12,
        "/cut-off": 5,
        "/target": 40,
    }
    assert tree_at(space, at_tx) == before
    space.check_references()
