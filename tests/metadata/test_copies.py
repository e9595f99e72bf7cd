"""Copies of trees show one moment, exist whole or not at all, and copy only names."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from peacefs.coordinator.metadata.model import InodeKind, TreeSummary
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.copy import CopyResult, TreeCopy
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    IllegalChange,
    NameTooLong,
    ParentNotDirectory,
    PeacefsError,
    SnapshotRefused,
)

from .conftest import Space, space_in_memory

BOB = Principal("bob", frozenset({"bob"}), is_superuser=False)


def shape(space: Space, top: str) -> dict[str, Any]:
    """Return by path below `top` the pieces of a file, or None for a directory."""
    found: dict[str, Any] = {}
    for entry in space.list_page(top or "/").entries:
        path = f"{top}/{entry.name}"
        if entry.kind is InodeKind.FILE:
            found[entry.name] = space.pieces(path)
        else:
            found[entry.name] = None
            found |= {f"{entry.name}/{name}": pieces for name, pieces in shape(space, path).items()}
    return found


def change(space: Space, number: int) -> None:
    """Make another change in /d each time, until little of it is unchanged."""
    changes = [
        lambda: space.delete("/d/sub"),
        lambda: space.create("/d/g", 99, overwrite=True),
        lambda: space.append("/d/f", 5),
        lambda: space.rename("/d/many", "/elsewhere"),
        lambda: space.create("/d/new/file", 3),
        lambda: space.truncate("/d/f", 1),
        lambda: space.delete("/elsewhere"),
        lambda: space.reclaim(limit=2),
        lambda: space.rename("/d", "/e"),
        lambda: space.delete("/e"),
        lambda: space.reclaim(limit=2),
    ]
    if number < len(changes):
        changes[number]()


@pytest.fixture(name="filled")
def _filled(space: Space) -> Space:
    space.create("/d/f", 10, 20)
    space.create("/d/g")
    space.create("/d/sub/deep/h", 7)
    space.mkdirs("/d/sub/empty")
    space.create_many([f"/d/many/{number:02}" for number in range(20)])
    return space


def chunk_count(space: Space) -> int:
    return len(namespace.chunk_page(space.reader, 0, 1000))


def test_small_copy_takes_one_commit(filled: Space) -> None:
    before = shape(filled, "/d")
    done = filled.begin_copy("/d", "/copy")
    assert isinstance(done, CopyResult)
    assert done.copied == TreeSummary(5, 23, 237, 474)
    assert shape(filled, "/copy") == before == shape(filled, "/d")
    assert filled.begin_copy("/d/f", "/file") == CopyResult(TreeSummary(0, 1, 30, 60), [])
    assert filled.pieces("/file") == before["f"]
    filled.check_references()


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_copy_shows_the_moment_at_which_it_began(filled: Space, limit: int) -> None:
    """The tree is changed, moved and deleted between any two commits of the copy."""
    before = shape(filled, "/d")
    made = filled.begin_copy("/d", "/copy", limit)
    for number in itertools.count():
        change(filled, number)
        if isinstance(made, CopyResult):
            break
        assert "copy" not in filled.names("/"), "nobody sees it before it is whole"
        made = filled.go_on_copying(made, limit)
    assert shape(filled, "/copy") == before
    filled.check_references()
    while number < 11:
        number += 1
        change(filled, number)
    assert shape(filled, "/copy") == before
    filled.reclaim(limit=3)
    assert filled.sql("SELECT count(*) FROM inode") == [(len(before) + 2,)], "the root, the copy and what is in it"
    assert filled.sql("SELECT (SELECT count(*) FROM pin) + (SELECT count(*) FROM purge)") == [(0,)]


def test_originals_and_copies_go_their_own_ways(filled: Space) -> None:
    before = shape(filled, "/d")
    chunks = chunk_count(filled)
    filled.copy("/d", "/copy")
    assert chunk_count(filled) == chunks, "no data was copied"
    filled.append("/copy/f", 1)
    filled.truncate("/copy/f", 3)
    filled.delete("/copy/sub")
    assert filled.reclaim() == [], "the original has what the copy has lost"
    assert shape(filled, "/d") == before
    filled.delete("/d")
    filled.reclaim()
    assert [length for _, length in filled.pieces("/copy/f")] == [3]
    filled.delete("/copy")
    filled.reclaim()
    assert chunk_count(filled) == 0


def test_a_copy_of_what_a_snapshot_shows(filled: Space) -> None:
    filled.allow_snapshots("/d")
    before = shape(filled, "/d")
    filled.take_snapshot("/d", "s")
    filled.delete("/d/sub")
    filled.create("/d/f", 5, overwrite=True)
    filled.copy("/d/.snapshot/s", "/d/again", limit=2)
    assert shape(filled, "/d/again") == before, "what is copied is not below the directory itself"
    filled.copy("/d/.snapshot/s/sub/deep", "/deep")
    assert filled.names("/deep") == ["h"]


def test_a_snapshot_that_goes_meanwhile_ends_the_copy(filled: Space) -> None:
    filled.allow_snapshots("/d")
    filled.take_snapshot("/d", "s")
    made = filled.begin_copy("/d/.snapshot/s", "/copy", limit=1)
    assert isinstance(made, TreeCopy)
    filled.drop_snapshot("/d", "s")
    filled.take_snapshot("/d", "s")
    with pytest.raises(SnapshotRefused, match="while it was being copied"):
        filled.go_on_copying(made)
    assert filled.names("/") == ["d"]
    filled.reclaim()
    assert filled.sql("SELECT count(*) FROM staged") == [(0,)]
    filled.check_references()


def test_copies_of_a_lowered_replication_ask_for_what_the_snapshot_had(space: Space) -> None:
    space.create("/d/f", 10)
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    space.commit(lambda tx: namespace.set_replication(tx, parse_path("/d/f"), 1))
    done = space.begin_copy("/d/.snapshot/s", "/copy")
    assert isinstance(done, CopyResult)
    assert [record.replication for record in done.changed] == [2]
    assert namespace.chunk_page(space.reader, 0, 10)[0].replication == 2


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("/none", "/copy", FileNotFound),
        ("/d/f/x", "/copy", AccessDenied),
        ("/d", "/d/copy", IllegalChange),
        ("/d", "/d/sub/copy", IllegalChange),
        ("/", "/copy", IllegalChange),
        ("/d", "/d", FileAlreadyExists),
        ("/d", "/", FileAlreadyExists),
        ("/d/f", "/d/g", FileAlreadyExists),
        ("/d", "/none/copy", FileNotFound),
        ("/d", "/d2/f/copy", ParentNotDirectory),
        ("/d", "/a:b", BadRequest),
        ("/d", "/" + "n" * 256, NameTooLong),
        ("/d/.snapshot/none", "/copy", FileNotFound),
    ],
)
def test_copy_is_refused(filled: Space, source: str, target: str, error: type[PeacefsError]) -> None:
    filled.create("/d2/f")
    before = shape(filled, "")
    with pytest.raises(error):
        filled.copy(source, target, limit=3)
    assert shape(filled, "") == before


def test_a_target_that_is_taken_meanwhile_is_left_alone(filled: Space) -> None:
    made = filled.begin_copy("/d", "/copy", limit=5)
    filled.create("/copy", 1)
    while isinstance(made, TreeCopy) and not made.growth.is_whole:
        made = filled.go_on_copying(made, 5)
    assert isinstance(made, TreeCopy)
    with pytest.raises(FileAlreadyExists):
        filled.go_on_copying(made)
    assert filled.status("/copy").length == 1
    chunks = chunk_count(filled)
    assert filled.reclaim() == [] and chunk_count(filled) == chunks
    assert filled.sql("SELECT count(*) FROM pin") == [(0,)]


def test_all_that_is_copied_must_be_readable(filled: Space) -> None:
    filled.mkdirs("/bobs", user="bob")
    filled.copy("/d", "/bobs/copy", limit=3, caller=BOB)
    copied = filled.status("/bobs/copy/sub/deep/h")
    assert (copied.owner, copied.group) == ("bob", filled.status("/bobs").group)
    assert copied.permission == 0o644
    for hidden, mode in (("/d/sub/deep/h", 0o600), ("/d/sub", 0o744), ("/d", 0o711)):
        seen = filled.status(hidden).permission
        filled.commit(lambda tx, p=hidden, m=mode: namespace.set_permission(tx, parse_path(p), m))
        with pytest.raises(AccessDenied, match=f'inode="{hidden}"'):
            filled.copy("/d", "/bobs/other", limit=3, caller=BOB)
        filled.commit(lambda tx, p=hidden, m=seen: namespace.set_permission(tx, parse_path(p), m))
    filled.commit(lambda tx: namespace.set_permission(tx, parse_path("/d"), 0o755))
    with pytest.raises(AccessDenied, match='user=bob, access=WRITE, inode="/d"'):
        filled.copy("/d/f", "/d/copy", caller=BOB)
    assert filled.names("/bobs") == ["copy"]


def test_attributes_are_kept_only_when_asked_for(filled: Space) -> None:
    filled.commit(lambda tx: namespace.set_times(tx, parse_path("/d/f"), 111, 222))
    root = Principal("root", frozenset({"root"}), is_superuser=True)
    filled.mkdirs("/bobs", user="bob")
    filled.copy("/d", "/bobs/plain", caller=BOB, now_ms=999)
    filled.copy("/d", "/bobs/times", caller=BOB, preserve=True)
    filled.copy("/d", "/all", caller=root, preserve=True)
    seen = [
        (found.owner, found.modified_ms, found.accessed_ms)
        for found in map(filled.status, ("/bobs/plain/f", "/bobs/times/f", "/all/f"))
    ]
    assert seen == [("bob", 999, 999), ("bob", 111, 222), ("ann", 111, 222)]


def test_a_repeated_request_copies_once(filled: Space) -> None:
    """The request is repeated after it was done, and again while the first one is still running."""
    first = filled.begin_copy("/d", "/copy", request_id="r")
    assert filled.begin_copy("/d", "/copy", request_id="r") == first
    slow, fast = (filled.begin_copy("/d", "/other", 5, request_id="s") for _ in range(2))
    while isinstance(fast, TreeCopy):
        fast = filled.go_on_copying(fast, 5)
    while isinstance(slow, TreeCopy):
        slow = filled.go_on_copying(slow, 5)
    assert slow == fast
    assert shape(filled, "/other") == shape(filled, "/d")
    filled.reclaim()
    filled.check_references()
    assert filled.sql("SELECT (SELECT count(*) FROM pin) + (SELECT count(*) FROM staged)") == [(0,)]


def test_a_start_gives_up_what_was_being_copied() -> None:
    space = space_in_memory()
    space.create_many([f"/d/{number}" for number in range(20)])
    assert isinstance(space.begin_copy("/d", "/copy", limit=5), TreeCopy)
    space.delete("/d")
    space.metadata._transaction.numbering = None
    space.metadata.begin_epoch()
    space.reclaim()
    assert space.names("/") == []
    assert space.sql("SELECT (SELECT count(*) FROM inode) + (SELECT count(*) FROM chunk)") == [(1,)]
    space.metadata.close()


def test_a_pin_stands_in_nobodys_way(filled: Space) -> None:
    """Unlike a snapshot, a pin does not prevent moving or deleting the directory, and is invisible."""
    filled.allow_snapshots("/d")
    assert isinstance(filled.begin_copy("/d", "/copy", limit=1), TreeCopy)
    assert filled.reader.snapshots(filled.status("/d").inode) == []
    filled.rename("/d", "/e")
    assert filled.delete("/e").done
