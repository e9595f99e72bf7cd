"""A recursive delete looks at who may delete what, in pages; what changes meanwhile does not slip through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from peacefs.coordinator import namespace
from peacefs.coordinator.commits import run_now
from peacefs.coordinator.metadata import Transaction
from peacefs.coordinator.metadata_sqlite import SqliteMetadata
from peacefs.coordinator.names import Names
from peacefs.coordinator.paths import parse_path
from peacefs.coordinator.permissions import Callers
from peacefs.coordinator.records import RenameMode
from peacefs.coordinator.workplace import Workplace
from peacefs.protocol.errors import AccessDenied, FileNotFound, ServiceUnready
from peacefs.protocol.ids import Numbering
from peacefs.protocol.tokens import Seal
from tests.support.play import Play


class Tree:
    """Ann's /a/d, and what somebody does in it after it was looked at and before it is deleted."""

    def __init__(self, play: Play) -> None:
        self.metadata = SqliteMetadata.in_memory()
        numbering = Numbering(self.metadata.begin_epoch())
        self.meanwhile: Callable[[], object] = lambda: None
        self.looked = 0

        async def commit(change: Callable[[Transaction], Any]) -> Any:
            self.looked += 1
            self.meanwhile()
            return run_now(self.metadata, change)

        async def pause(_s: float) -> None:
            return

        workplace = Workplace(
            self.metadata.reader(),
            commit,
            play.cluster,
            Seal(b"secret"),
            numbering,
            lambda orders: None,
            Callers("root"),
            sleep=pause,
        )
        self.names = Names(workplace)
        self.mkdirs("/a/d/sub")
        self.mkdirs("/a/d/open", mode=0o777)
        self.mkdirs("/a/d/open/x")
        self.mkdirs("/b/full/y", user="bob")

    def change(self, request: Callable[[Transaction], Any]) -> Any:
        return run_now(self.metadata, request)

    def mkdirs(self, path: str, user: str = "ann", mode: int = 0o755) -> None:
        self.change(lambda tx: namespace.mkdirs(tx, parse_path(path), user, mode, 1))

    def once(self, *changes: Callable[[], object]) -> None:
        """They happen before the next commit, and no more after that."""

        def happen() -> None:
            self.meanwhile = lambda: None
            for change in changes:
                change()

        self.meanwhile = happen

    def delete(self) -> bool:
        return asyncio.run(self.names.delete("/a/d", True, "ann"))

    def is_there(self, path: str) -> bool:
        try:
            namespace.status(self.metadata.reader(), parse_path(path))
        except FileNotFound:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        source_path, target_path = parse_path(source), parse_path(target)
        self.change(lambda tx: namespace.rename(tx, source_path, target_path, RenameMode.STRICT, 2))

    def set_mode(self, path: str, mode: int) -> None:
        self.change(lambda tx: namespace.set_permission(tx, parse_path(path), mode))


@pytest.fixture
def tree(play: Play) -> Tree:
    return Tree(play)


def test_what_another_has_made_meanwhile_and_may_not_be_deleted_is_kept(tree: Tree) -> None:
    tree.once(lambda: tree.mkdirs("/a/d/open/bobs/inside", user="bob"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/bobs"'):
        tree.delete()
    assert tree.is_there("/a/d/open/bobs/inside")


def test_a_tree_that_was_moved_in_is_looked_through(tree: Tree) -> None:
    tree.once(lambda: tree.rename("/b/full", "/a/d/open/full"))
    with pytest.raises(AccessDenied, match='inode="/a/d/open/full"'):
        tree.delete()
    assert tree.looked == 1 and tree.is_there("/a/d/open/full/y")
    tree.set_mode("/a/d/open/full", 0o777)
    assert tree.delete()


def test_rights_that_were_taken_away_count(tree: Tree) -> None:
    tree.once(lambda: tree.set_mode("/a/d/open", 0o500))
    with pytest.raises(AccessDenied, match='inode="/a/d/open"'):
        tree.delete()


def test_a_sticky_bit_that_came_meanwhile_counts(tree: Tree) -> None:
    def give_away() -> None:
        for path in ("/a/d/open", "/a/d/open/x"):
            tree.change(lambda tx, p=path: namespace.set_owner(tx, parse_path(p), "bob", None))
        tree.set_mode("/a/d/open", 0o1777)

    tree.once(give_away)
    with pytest.raises(AccessDenied, match="sticky bit"):
        tree.delete()


def test_harmless_changes_hold_nobody_up(tree: Tree) -> None:
    tree.once(
        lambda: tree.mkdirs("/a/d/sub/new/below"),
        lambda: tree.mkdirs("/elsewhere/x", user="bob", mode=0o700),
        lambda: tree.set_mode("/a/d/sub", 0o700),
    )
    assert tree.delete()
    assert tree.looked == 1
    assert not tree.is_there("/a/d")


def test_a_tree_that_changes_faster_than_it_is_looked_at_is_not_deleted(tree: Tree) -> None:
    tree.mkdirs("/mine/x")
    places = ["/mine", "/a/d/sub/mine"]

    def move_in_again() -> None:
        if tree.is_there(places[1]):
            tree.rename(places[1], places[0])
        tree.rename(*places)

    tree.meanwhile = move_in_again
    with pytest.raises(ServiceUnready, match="try again"):
        tree.delete()
    assert tree.looked == 5
    tree.meanwhile = lambda: None
    assert tree.delete()


def test_what_is_too_much_to_remember_is_looked_at_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata_writes.rights_changes_checked_max", 3)
    tree.once(*(lambda number=number: tree.mkdirs(f"/c{number}") for number in range(10)))
    assert tree.delete()
    assert tree.looked == 2
