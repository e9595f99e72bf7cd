"""An inspection visits every file once, in pages, whatever changes between two pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.no_links import NoLinks
from support.play import Play

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import Lease
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.coordinator.operations import fsck as walk
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.fsck import Fsck
from peacefs.protocol.errors import AccessDenied, BadRequest, FileNotFound
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.fsck_findings import FileFindings, Finding, FsckPage, Tally

T = TypeVar("T")

PATHS = ["/a/1", "/a/2", "/a/b/1", "/a/b/c/1", "/a/b/c/2", "/a!", "/b/1", "/d", "/é/z"]


class Tree:
    """A namespace, a cluster with good replicas of all its files, and an inspection."""

    def __init__(self, play: Play, callers: Callers | None = None) -> None:
        self.metadata = store_in_memory()
        self.numbering = play.begin_epoch(self.metadata)
        self.cluster = play.cluster
        play.join("dn-1", rack="/1")
        play.join("dn-2", rack="/2")
        play.open_for_business()
        self.clock_s = 0.0
        self.pauses = 0
        self.inspection = Fsck(
            OperationContext(
                self.metadata.reader(),
                CommitsAtOnce(self.metadata),
                play.core,
                Signer(b"secret"),
                NoLinks(),
                durable_at_once(self.metadata),
                callers=callers or Callers(),
                monotonic=self._tick,
                sleep=self._pause,
            )
        )

    def _tick(self) -> float:
        self.clock_s += 0.0001
        return self.clock_s

    async def _pause(self, seconds: float) -> None:
        self.pauses += 1

    def commit(self, change: Callable[[Transaction], T]) -> T:
        return run_now(self.metadata, change)

    def write(self, path: str, chunks: int = 1, *, holders: tuple[str, ...] = ("dn-1", "dn-2")) -> None:
        receipts = [Receipt(node, b"") for node in holders]
        file = NewFile(path=path, user="ann", replication=2, block_bytes=1 << 26, request_id=path)
        written = [WrittenChunk(self.numbering.next(), 1, 10, 7, receipts) for _ in range(chunks)]
        self.cluster.published(self.commit(lambda tx: namespace.complete_file(tx, file, written, 1)).added)

    def delete(self, path: str) -> None:
        result = self.commit(lambda tx: namespace.delete(tx, parse_path(path), True, 1))
        self.cluster.freed(self.clock_s, result.freed)

    def page(self, path: str = "/", after: str | None = None, *, every_file: bool = True) -> FsckPage:
        return asyncio.run(self.inspection.page(path, "ann", after, every_file=every_file))

    def pages(
        self, path: str = "/", between: Callable[[int], None] = lambda number: None, *, every_file: bool = True
    ) -> list[FsckPage]:
        pages = [self.page(path, every_file=every_file)]
        while pages[-1].after is not None:
            between(len(pages))
            pages.append(self.page(path, pages[-1].after, every_file=every_file))
        return pages


def _fatal(fault: Exception) -> None:
    raise AssertionError(fault)


def files_of(pages: Iterable[FsckPage]) -> list[FileFindings]:
    return [file for page in pages for file in page.files]


def paths_of(pages: Iterable[FsckPage]) -> list[str]:
    return [file.path for file in files_of(pages)]


def total_of(pages: Iterable[FsckPage]) -> Tally:
    total = Tally()
    for page in pages:
        total.add(page.tally)
    return total


@pytest.fixture
def tree(play: Play) -> Tree:
    tree = Tree(play)
    for path in PATHS:
        tree.write(path)
    return tree


@pytest.mark.parametrize("entries_per_page", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("entries_per_read", [1, 2, 100])
def test_every_file_is_judged_once_however_small_the_pages(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, entries_per_page: int, entries_per_read: int
) -> None:
    monkeypatch.setattr(walk, "fsck_entries_per_page", entries_per_page)
    monkeypatch.setattr(walk, "fsck_entries_per_read", entries_per_read)
    pages = tree.pages()
    assert sorted(paths_of(pages)) == sorted(PATHS)
    total = total_of(pages)
    assert (total.files, total.directories, total.chunks, total.replicas) == (9, 6, 9, 18)
    assert total.worst is None
    assert all(len(page.files) <= entries_per_page for page in pages)
    assert [page.cluster is not None for page in pages] == [False] * (len(pages) - 1) + [True]


def test_a_subtree_or_a_file_can_be_inspected_alone(tree: Tree) -> None:
    assert paths_of(tree.pages("/a/b")) == ["/a/b/1", "/a/b/c/1", "/a/b/c/2"]
    (page,) = tree.pages("/d")
    assert (page.tally.files, page.tally.directories) == (1, 0)
    assert paths_of([page]) == ["/d"]
    with pytest.raises(FileNotFound):
        tree.page("/nothing")


def test_only_files_with_findings_are_listed_unless_all_are_asked_for(tree: Tree) -> None:
    tree.write("/poor", holders=("dn-1",))
    pages = tree.pages(every_file=False)
    (poor,) = files_of(pages)
    assert (poor.path, poor.findings) == ("/poor", [Finding.UNDER_REPLICATED])
    assert total_of(pages).files == len(PATHS) + 1


def test_a_file_that_somebody_extends_is_listed_as_open(tree: Tree) -> None:
    inode = namespace.status(tree.metadata.reader(), parse_path("/d")).inode
    tree.commit(lambda tx: namespace.take_lease(tx, parse_path("/d"), inode, Lease(1, "somebody")))
    pages = tree.pages(every_file=False)
    (open_file,) = files_of(pages)
    assert (open_file.path, open_file.is_open, open_file.findings) == ("/d", True, [])
    assert (total_of(pages).open_files, total_of(pages).worst) == (1, None)


def test_deletion_between_two_pages_does_not_stop_the_walk(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "fsck_entries_per_page", 1)
    left = iter(["/a/b/c", "/a/b", "/a", "/b"])

    def delete_where_it_is(number: int) -> None:
        if number % 2 == 0:
            tree.delete(next(left, "/nothing"))

    seen = paths_of(tree.pages(between=delete_where_it_is))
    assert len(seen) == len(set(seen))
    assert {"/a!", "/d", "/é/z"} <= set(seen)


def test_a_file_that_is_deleted_while_it_is_looked_at_is_not_called_missing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "fsck_turn_s", 0.0)

    async def delete_all(seconds: float) -> None:
        for path in ("/a!", "/b", "/d", "/é"):
            tree.delete(path)
        while tree.commit(lambda tx: reclaim_step(tx, 100)[1]):
            pass

    object.__setattr__(tree.inspection._ctx, "sleep", delete_all)
    total = total_of(tree.pages())
    assert total.worst is None
    assert total.files == len([path for path in PATHS if path.startswith("/a/")])


def test_a_page_lets_others_have_the_loop_within_a_file_too(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "fsck_chunks_per_turn", 10)
    monkeypatch.setattr(walk, "fsck_turn_s", 0.0002)
    tree.write("/long", chunks=1000)
    (page,) = tree.pages("/long")
    assert page.tally.chunks == 1000
    assert tree.pauses > 20


def test_a_walk_cannot_go_on_where_it_never_was(tree: Tree) -> None:
    for after in ("/b", "/a", "relative"):
        with pytest.raises(BadRequest):
            tree.page("/a", after)


def test_inspection_of_unreadable_paths_is_refused_as_by_hdfs(play: Play) -> None:
    tree = Tree(play, Callers("root"))
    for path in ("/open/f", "/shut/f", "/open/secret"):
        tree.write(path)
    tree.commit(lambda tx: namespace.set_permission(tx, parse_path("/open/secret"), 0o640))
    tree.commit(lambda tx: namespace.set_permission(tx, parse_path("/shut"), 0o711))

    def inspected(path: str, user: str, after: str | None = None) -> list[str]:
        page = asyncio.run(tree.inspection.page(path, user, after, every_file=True))
        return [file.path for file in page.files]

    assert inspected("/", "root") == ["/open/f", "/open/secret", "/shut/f"] == inspected("/", "ann")
    assert inspected("/open/f", "bob") == ["/open/f"]
    for path, after, inode in (
        ("/", None, "/open/secret"),
        ("/open", "/open/f", "/open/secret"),
        ("/open/secret", None, "/open/secret"),
        ("/shut", None, "/shut"),
        ("/shut", "/shut/a", "/shut"),
        ("/", "/shut/a", "/shut"),
    ):
        with pytest.raises(AccessDenied, match=rf'Permission denied: user=bob, access=READ\w*, inode="{inode}"'):
            inspected(path, "bob", after)
    assert inspected("/shut/f", "bob") == ["/shut/f"], "as `cat` may, by its name"
