"""Restoring a snapshot needs the right to delete what it removes, even if that was added during the restore."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.play import Play
from support.shared_tree import SharedTree

from peacefs.protocol.errors import AccessDenied, Overloaded, ServiceUnready


@pytest.fixture
def tree(play: Play) -> SharedTree:
    """Return a tree in which /a/d has a snapshot `then`, and has changed since."""
    tree = SharedTree(play)
    asyncio.run(tree.snapshots.allow("/a/d", "root"))
    asyncio.run(tree.snapshots.create("/a/d", "ann", "then"))
    tree.mkdirs("/a/d/sub/since")
    tree.looked = 0
    return tree


def restore(tree: SharedTree) -> None:
    asyncio.run(tree.snapshots.restore("/a/d", "ann", "then"))


def before_the_last_commit(tree: SharedTree, *changes: Callable[[], object]) -> None:
    """Start, copy in one step, finish; run the change when everything has been copied."""
    calls = iter(range(10))

    def happen() -> None:
        if next(calls) == 2:
            for change in changes:
                change()

    tree.meanwhile = happen


def left_over(tree: SharedTree) -> bool:
    """Return whether a copied tree is still waiting for a name that it will not get."""
    asyncio.run(tree.names.reclaim())
    staged = tree.metadata.imaged().execute("SELECT count(*) FROM staged").get
    return bool(staged)


def test_restore_keeps_what_another_has_made_during_the_copy(tree: SharedTree) -> None:
    before_the_last_commit(tree, lambda: tree.mkdirs("/a/d/open/bobs/inside", user="bob"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/bobs"'):
        restore(tree)
    assert tree.is_there("/a/d/open/bobs/inside") and tree.is_there("/a/d/sub/since")
    tree.meanwhile = lambda: None
    assert not left_over(tree)


def test_restore_checks_what_was_moved_in_meanwhile(tree: SharedTree) -> None:
    before_the_last_commit(tree, lambda: tree.rename("/b/full", "/a/d/open/full"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/full"'):
        restore(tree)
    assert tree.is_there("/a/d/open/full/y")


def test_a_right_that_was_taken_away_meanwhile_counts(tree: SharedTree) -> None:
    before_the_last_commit(tree, lambda: tree.set_mode("/a/d/open", 0o500))
    with pytest.raises(AccessDenied, match='inode="/a/d/open"'):
        restore(tree)


def test_harmless_changes_do_not_hold_it_up(tree: SharedTree) -> None:
    before_the_last_commit(tree, lambda: tree.mkdirs("/a/d/sub/late"), lambda: tree.mkdirs("/elsewhere", "bob"))
    restore(tree)
    assert tree.looked == 3
    assert tree.is_there("/a/d/sub") and not tree.is_there("/a/d/sub/late") and not tree.is_there("/a/d/sub/since")


def test_a_directory_that_changes_faster_than_it_is_looked_at_is_not_restored(tree: SharedTree) -> None:
    tree.never_be_still("/a/d/sub/mine")
    with pytest.raises(ServiceUnready, match="try again"):
        restore(tree)
    tree.meanwhile = lambda: None
    assert not left_over(tree)
    restore(tree)
    assert not tree.is_there("/a/d/sub/mine")


def test_restore_begun_in_vain_is_given_up_when_commits_are_taken_again(
    tree: SharedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is full when copying continues, and still full when the coordinator next cleans up."""

    def refuse() -> None:
        raise Overloaded("too many changes wait")

    calls = iter(range(10))
    tree.meanwhile = lambda: refuse() if next(calls) > 0 else None
    with pytest.raises(Overloaded):
        restore(tree)
    with pytest.raises(Overloaded):
        asyncio.run(tree.names.reclaim())
    tree.meanwhile = lambda: None
    assert not left_over(tree)
    restore(tree)
    assert not tree.is_there("/a/d/sub/since")
