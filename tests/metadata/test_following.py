"""Resolving a path equals single look-ups, and a change writes few rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from peacefs.coordinator.metadata.log.entry import decode_content
from peacefs.coordinator.metadata.model import Inode
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.tables import CHUNK, ENTRY, INODE, META, REFERENCE, REQUEST
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import FileAlreadyExists

from .conftest import Space

_DEEP = [f"d{depth}" for depth in range(40)]
_WAYS: list[list[str]] = [
    [],
    ["a"],
    ["a", "b", "file"],
    ["a", "b", "file", "below", "it"],
    ["a", "no", "b"],
    ["nothing", "here"],
    ["a", "d0"],
    *([*_DEEP[:depth], *rest] for depth in (15, 16, 17, 31, 32, 33, 40) for rest in ([], ["no"], ["no", "more"])),
]


def step_by_step(reader: Reader, names: Sequence[str]) -> list[Inode]:
    passed = [reader.inode(reader.root)]
    for name in names:
        assert passed[-1] is not None
        passed.append(reader.child_inode(passed[-1].inode, name))
        if passed[-1] is None:
            break
    return [inode for inode in passed if inode is not None]


def check_ways(reader: Reader) -> None:
    for names in _WAYS:
        expected = step_by_step(reader, names)
        assert reader.pass_through(names) == expected, names
        assert reader.follow(names) == ([inode.inode for inode in expected], expected[-1]), names


@pytest.fixture
def tree(space: Space) -> Space:
    space.create("/a/b/file", 10)
    space.create("/" + "/".join(_DEEP) + "/file", 10)
    return space


def test_names_lead_as_far_as_they_exist_however_many_there_are(tree: Space) -> None:
    check_ways(tree.reader)
    tree.commit(check_ways)


def test_in_a_snapshot_they_lead_where_they_led_then(tree: Space) -> None:
    tree.allow_snapshots("/")
    tree.take_snapshot("/", "before")
    before = [step_by_step(tree.reader, names) for names in _WAYS]
    tree.rename("/d0", "/a/d0")
    tree.delete("/a/b")
    tree.create("/a/no/b", 10)
    (snapshot,) = tree.reader.snapshots(tree.reader.root)
    past = tree.reader.at(snapshot.at_tx, tree.reader.root)
    check_ways(past)
    assert [[inode.inode for inode in past.pass_through(names)] for names in _WAYS] == [
        [inode.inode for inode in passed] for passed in before
    ]
    check_ways(tree.reader)


def test_a_change_sees_its_own_changes_and_none_that_were_undone(tree: Space) -> None:
    def refused(tx: Transaction) -> None:
        tx.add_entry(tx.root, "nothing", tx.child(tx.root, "a") or 0)
        check_ways(tx)
        raise FileAlreadyExists("after all")

    with pytest.raises(FileAlreadyExists):
        tree.commit(refused)
    tree.commit(check_ways)
    assert tree.reader.follow(["nothing"])[0] == [tree.reader.root]


def test_the_floor_that_a_change_raised_and_took_back_is_not_believed(tree: Space) -> None:
    before = tree.reader.floor()

    def refused(tx: Transaction) -> None:
        tx.raise_gc_floor(10**15)
        assert tx.floor() == 10**15
        raise FileAlreadyExists("after all")

    with pytest.raises(FileAlreadyExists):
        tree.commit(refused)
    assert tree.commit(lambda tx: tx.floor()) == before
    tree.commit(lambda tx: tx.raise_gc_floor(before + 1))
    assert tree.commit(lambda tx: tx.floor()) == tree.reader.floor() == before + 1


@pytest.mark.parametrize("space", ["journal"], indirect=True)
def test_a_small_file_in_a_deep_directory_is_published_with_few_rows_and_one_look_at_the_image(
    tree: Space,
) -> None:
    directory = "/" + "/".join(_DEEP[:12])
    tree.create(f"{directory}/first", 10)
    file = tree.completion(f"{directory}/small", 10)
    seen: list[str] = []
    tree.metadata.image.set_exec_trace(lambda _cursor, statement, _values: seen.append(statement) is None)
    before = len(tree.metadata.log.entries)
    try:
        tree.complete(file)
    finally:
        tree.metadata.image.set_exec_trace(None)
    (entry,) = tree.metadata.log.entries[before:]
    # Inode, entry, directory time, chunk, reference, request; in `meta` two numbers and a checksum.
    assert sorted(table for table, _ in decode_content(entry.content).changes) == sorted(
        [INODE, ENTRY, INODE, CHUNK, REFERENCE, REQUEST, META, META, META]
    )
    assert seen == ["SELECT * FROM chunk WHERE chunk = ?"], "whether the chunk is new; all else is in memory"
