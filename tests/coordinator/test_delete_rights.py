"""A recursive delete checks permissions page by page; concurrent changes do not escape the check."""

from __future__ import annotations

import pytest
from support.play import Play
from support.shared_tree import SharedTree

from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import AccessDenied, ServiceUnready


@pytest.fixture
def tree(play: Play) -> SharedTree:
    return SharedTree(play)


def test_delete_keeps_what_another_has_made_meanwhile(tree: SharedTree) -> None:
    tree.once(lambda: tree.mkdirs("/a/d/open/bobs/inside", user="bob"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/bobs"'):
        tree.delete()
    assert tree.is_there("/a/d/open/bobs/inside")


def test_a_tree_that_was_moved_in_is_looked_through(tree: SharedTree) -> None:
    tree.once(lambda: tree.rename("/b/full", "/a/d/open/full"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/full"'):
        tree.delete()
    assert tree.looked == 1 and tree.is_there("/a/d/open/full/y")
    tree.set_mode("/a/d/open/full", 0o777)
    assert tree.delete()


def test_a_tree_that_has_come_to_stand_in_its_place_is_looked_through(tree: SharedTree) -> None:
    tree.mkdirs("/b/full/z", user="bob", mode=0o700)
    tree.set_mode("/b/full", 0o700)
    tree.once(lambda: tree.rename("/a/d", "/a/was"), lambda: tree.rename("/b/full", "/a/d"))
    with pytest.raises(AccessDenied, match='inode="/a/d"'):
        tree.delete()
    assert tree.is_there("/a/d/y")


def test_a_tree_whose_way_leads_elsewhere_now_is_looked_through(tree: SharedTree) -> None:
    tree.mkdirs("/c/d", user="ann", mode=0o777)
    tree.mkdirs("/c/d/bobs/inside", user="bob")
    tree.once(lambda: tree.rename("/a", "/was"), lambda: tree.rename("/c", "/a"))
    with pytest.raises(AccessDenied, match='inode="/a/d/bobs"'):
        tree.delete()
    assert tree.is_there("/a/d/bobs/inside")


def test_rights_that_were_taken_away_count(tree: SharedTree) -> None:
    tree.once(lambda: tree.set_mode("/a/d/open", 0o500))
    with pytest.raises(AccessDenied, match='inode="/a/d/open"'):
        tree.delete()


def test_a_sticky_bit_that_came_meanwhile_counts(tree: SharedTree) -> None:
    def give_away() -> None:
        for path in ("/a/d/open", "/a/d/open/x"):
            tree.change(lambda tx, p=path: namespace.set_owner(tx, parse_path(p), "bob", None))
        tree.set_mode("/a/d/open", 0o1777)

    tree.once(give_away)
    with pytest.raises(AccessDenied, match="sticky bit"):
        tree.delete()


def test_harmless_changes_hold_nobody_up(tree: SharedTree) -> None:
    tree.once(
        lambda: tree.mkdirs("/a/d/sub/new/below"),
        lambda: tree.mkdirs("/elsewhere/x", user="bob", mode=0o700),
        lambda: tree.set_mode("/a/d/sub", 0o700),
    )
    assert tree.delete()
    assert tree.looked == 1
    assert not tree.is_there("/a/d")


def test_a_tree_that_changes_faster_than_it_is_looked_at_is_not_deleted(tree: SharedTree) -> None:
    tree.never_be_still("/a/d/sub/mine")
    with pytest.raises(ServiceUnready, match="try again"):
        tree.delete()
    assert tree.looked == 5
    tree.meanwhile = lambda: None
    assert tree.delete()


def test_delete_checks_again_what_is_too_much_to_remember(
    tree: SharedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata.transaction.rights_changes_checked_max", 3)
    tree.once(*(lambda number=number: tree.mkdirs(f"/c{number}") for number in range(10)))
    assert tree.delete()
    assert tree.looked == 2
