"""Deleted trees disappear at once, and are reclaimed later in small steps."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.model import ChunkRecord, RenameMode
from peacefs.coordinator.namespace import reclaim
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.protocol.errors import FileNotFound

from .conftest import Space


def grow(space: Space, top: str) -> list[int]:
    """Make a tree with 30 files of two chunks and 11 directories below its top. Return its chunk ids."""
    chunks: list[ChunkRecord] = []
    for number in range(30):
        chunks += space.create(f"{top}/{number % 5}/deep/{number}", 3, 4).added
    space.mkdirs(f"{top}/empty")
    return sorted(record.chunk for record in chunks)


def left(space: Space) -> dict[str, int]:
    tables = ("inode", "entry", "reference", "chunk", "discarded")
    return {table: space.sql(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


@pytest.mark.evidence("names-are-atomic")
def test_a_deleted_tree_is_gone_at_once_and_its_name_free(space: Space) -> None:
    grow(space, "/t")
    result = space.delete("/t")
    assert result.done and result.freed == []
    assert left(space)["discarded"] == 1, "one row, however large the tree"
    with pytest.raises(FileNotFound):
        space.status("/t/0/deep/0")
    space.create("/t/0/deep/0", 1)
    space.reclaim()
    assert space.names("/t/0/deep") == ["0"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50, 1000])
def test_steps_of_any_size_free_everything_and_nothing_else(space: Space, limit: int) -> None:
    space.create("/kept/f", 9)
    before = left(space)
    chunks = grow(space, "/t")
    space.delete("/t")
    freed = []
    more = True
    while more:
        work_before = left(space)
        step, more = space.commit(lambda tx: reclaim_step(tx, limit))
        freed += step
        work_after = left(space)
        gone = sum(max(0, work_before[table] - work_after[table]) for table in ("entry", "reference"))
        assert gone <= 3 * limit
        space.check_references()
    assert sorted(record.chunk for record in freed) == chunks
    assert left(space) == before
    assert space.commit(lambda tx: reclaim_step(tx, limit)) == ([], False)


def test_a_step_is_bounded_by_chunks_as_well_as_by_entries(space: Space) -> None:
    for number in range(10):
        space.create(f"/t/{number}", *[1] * 8)
    space.delete("/t")
    freed, more = space.commit(lambda tx: reclaim_step(tx, 20))
    assert 20 <= len(freed) <= 30 and more


def test_a_file_of_very_many_chunks_is_freed_in_steps_too(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "reclaim_entries_per_commit", 10)
    added = space.create("/f", *[1] * 25).added
    result = space.delete("/f")
    assert result.done and len(result.freed) == 10
    steps = []
    more = True
    while more:
        freed, more = space.commit(lambda tx: reclaim_step(tx, 10))
        steps.append(len(freed))
    assert steps == [10, 5] and left(space) == {**dict.fromkeys(left(space), 0), "inode": 1}
    assert len(added) == 25


def test_a_tree_that_was_moved_first_is_freed_from_where_it_went(space: Space) -> None:
    chunks = grow(space, "/a/t")
    space.mkdirs("/b")
    space.rename("/a/t", "/b", RenameMode.LEGACY)
    space.delete("/a")
    assert space.reclaim() == []
    space.delete("/b")
    assert sorted(record.chunk for record in space.reclaim()) == chunks
    assert left(space)["inode"] == 1
