"""The contract of a store, by topic, through its interface only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from peacefs.coordinator.metadata.model import (
    ROOT,
    ChunkRecord,
    Inode,
    InodeId,
    InodeKind,
    Lease,
    NamespaceUsage,
    Quota,
    RecordedRun,
)
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.file import size_bytes
from peacefs.coordinator.metadata.sqlite.lost_commits import accept
from peacefs.coordinator.metadata.sqlite.store import open_store, store_in_memory
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace.quotas import small_tree_usage
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import first_of_epoch

STORE = "metadata.sqlite"


class Opened:
    """A store in a directory, its reader, and commits of one request."""

    def __init__(self, directory: Path) -> None:
        self.metadata: Metadata = open_store(directory / STORE, owner="root")
        self.epoch = self.metadata.begin_epoch()
        self.reader: Reader = self.metadata.reader()

    def commit(self, change: Callable[[Transaction], Any]) -> Any:
        (outcome,) = self.metadata.commit([change])
        if outcome.error is not None:
            raise outcome.error
        return outcome.answer

    def file(self, name: str, parent: InodeId = ROOT) -> InodeId:
        return self._add(name, parent, InodeKind.FILE)

    def directory(self, name: str, parent: InodeId = ROOT) -> InodeId:
        return self._add(name, parent, InodeKind.DIRECTORY)

    def _add(self, name: str, parent: InodeId, kind: InodeKind) -> InodeId:
        def change(tx: Transaction) -> InodeId:
            inode = tx.add_inode(Inode(0, kind, 0o644, "ann", "staff", 1, 1, 0, 1 << 26, 3))
            tx.add_entry(parent, name, inode)
            return inode

        made: InodeId = self.commit(change)
        return made

    def chunk(self, number: int) -> ChunkRecord:
        return ChunkRecord(first_of_epoch(self.epoch) + number, 1, 10, 3, ("dn-1", "dn-2"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.metadata.close()


def test_names_are_found_by_the_way_and_listed_in_byte_order(store: Opened) -> None:
    d = store.directory("d")
    inodes = {name: store.file(name, d) for name in ("b", "é", "a", "Z")}
    assert [name for name, _inode in store.reader.children(d, "", 10)] == ["Z", "a", "b", "é"]
    assert [name for name, _inode in store.reader.children(d, "a", 1)] == ["b"]
    assert store.reader.count_children(d, "a", 10) == 2 and store.reader.has_children(d)
    passed, last = store.reader.follow(["d", "a", "x"])
    assert passed == [ROOT, d, inodes["a"]] and last.inode == inodes["a"]
    assert store.reader.child(d, "b") == inodes["b"] and store.reader.child(d, "c") is None
    assert store.reader.ancestors(inodes["b"]) == [(ROOT, "d"), (d, "b")]
    store.commit(lambda tx: tx.remove_entry(d, "b"))
    assert not store.reader.is_in_tree(inodes["b"]) and store.reader.is_in_tree(inodes["a"])
    assert store.reader.inode(inodes["b"]) is not None, "it has lost its name alone"


def test_names_change_all_at_once_or_not_at_all(store: Opened) -> None:
    def change(tx: Transaction) -> None:
        tx.add_entry(ROOT, "half", tx.add_inode(Inode(0, InodeKind.FILE, 0o644, "ann", "", 1, 1, 0, 0, 1)))
        raise KeyError("the other half")

    good = store.metadata.commit([change, lambda tx: tx.raise_gc_floor(7)])
    assert isinstance(good[0].error, KeyError) and good[1].error is None
    assert store.reader.child(ROOT, "half") is None and store.reader.floor() == 7


def test_names_that_others_change_while_a_reader_waits_are_seen_at_once(store: Opened) -> None:
    store.file("before")
    assert len(store.reader.children(ROOT, "", 10)) == 1
    store.file("meanwhile")
    assert len(store.reader.children(ROOT, "", 10)) == 2


def test_chunks_go_when_the_last_reference_to_them_does(store: Opened) -> None:
    one, other, chunk = store.file("one"), store.file("other"), store.chunk(1)
    assert store.commit(lambda tx: tx.add_chunk(one, 0, chunk, 7))
    assert not store.commit(lambda tx: tx.add_chunk(other, 0, chunk, 7)), "its id is known"
    store.commit(lambda tx: tx.add_reference(other, 0, chunk.chunk, 4))
    assert [each.length for each in store.reader.references(other)] == [4]
    assert store.reader.chunks(0, 10) == [chunk] and store.reader.reference_count(chunk.chunk) == 2
    assert store.commit(lambda tx: tx.drop_references(one, 10)) == (1, [])
    assert store.commit(lambda tx: tx.cut_references(other, 0)) == [chunk]
    assert store.reader.chunk(chunk.chunk) is None and store.reader.reference_count(chunk.chunk) == 0


def test_chunks_lead_back_to_all_files_that_refer_to_them_however_few_are_looked_at_at_once(store: Opened) -> None:
    shared, files = store.chunk(1), [store.file(f"f{number}") for number in range(5)]
    for number, inode in enumerate(files):
        own = store.chunk(10 + number)
        store.commit(lambda tx, inode=inode, own=own: tx.add_chunk(inode, 0, own, 7))
    store.commit(lambda tx: tx.add_chunk(files[1], 1, shared, 7))
    store.commit(lambda tx: tx.add_reference(files[4], 1, shared.chunk, 10))
    for is_in_image in (False, True):
        if is_in_image:
            store.metadata.catch_up()
        for limit in (1, 2, 3, 7, 100):
            steps = list(store.reader.referrers(shared.chunk, limit))
            assert [inode for step in steps for inode in step] == [files[1], files[4]], limit
            # Five files and seven references, some of which may be changed, or in the image.
            assert all(len(step) <= limit for step in steps) and len(steps) >= 5 / limit
    own = store.reader.references(files[4])[0].chunk
    store.commit(lambda tx: tx.drop_references(files[4], 10))
    assert [step for step in store.reader.referrers(shared.chunk, 2) if step] == [[files[1]]]
    assert not any(store.reader.referrers(own, 2))


def test_chunks_that_are_kept_and_the_floor_are_what_garbage_is_judged_by(store: Opened) -> None:
    store.commit(lambda tx: tx.keep_chunk(5, 60_000))
    store.commit(lambda tx: tx.raise_gc_floor(9))
    store.commit(lambda tx: tx.raise_gc_floor(3))
    assert store.reader.floor() == 9 and store.reader.is_kept(5) and not store.reader.is_kept(6)
    store.metadata.hold_gc_floor()
    store.commit(lambda tx: tx.raise_gc_floor(20))
    assert store.reader.floor() == 9 and store.reader.gc_floor_held()
    assert store.commit(lambda tx: tx.release_gc_floor()) and not store.reader.gc_floor_held()


def test_leases_are_taken_over_and_dropped(store: Opened) -> None:
    inode = store.file("f")
    assert store.reader.lease(inode) is None
    for lease in (Lease(1, "ann"), Lease(2, "bob")):
        store.commit(lambda tx, lease=lease: tx.set_lease(inode, lease))
        assert store.reader.lease(inode) == lease
    store.commit(lambda tx: tx.drop_lease(inode))
    assert store.reader.lease(inode) is None


def test_snapshots_show_a_directory_as_it_was(store: Opened) -> None:
    d = store.directory("d")
    store.file("old", d)
    store.commit(lambda tx: tx.set_allows_snapshots(d, True))
    store.commit(lambda tx: tx.add_snapshot(d, "s", 5))
    store.commit(lambda tx: tx.remove_entry(d, "old"))
    store.file("new", d)
    (snapshot,) = store.reader.snapshots(d)
    past = store.reader.at(snapshot.at_tx, d)
    assert [name for name, _inode in past.children(d, "", 10)] == ["old"]
    assert [name for name, _inode in store.reader.children(d, "", 10)] == ["new"]
    store.commit(lambda tx: tx.remove_snapshot(d, "s"))
    assert store.reader.snapshots(d) == [] and store.reader.snapshot_directories() == [d]


def test_quotas_are_charged(store: Opened) -> None:
    d = store.directory("d")
    store.commit(lambda tx: tx.set_quota(d, Quota(10, None, NamespaceUsage(1, 0))))
    store.commit(lambda tx: tx.charge_quota(d, NamespaceUsage(2, 300)))
    assert store.reader.quota(d) == Quota(
        10, None, NamespaceUsage(3, 300)
    ) and store.reader.quota_directories() == {d}
    store.file("f", d)
    assert small_tree_usage(store.reader, d, 2) == NamespaceUsage(2, 0)
    assert small_tree_usage(store.reader, d, 1) is None, "more than was to be counted"
    store.commit(lambda tx: tx.drop_quota(d))
    assert store.reader.quota(d) is None


def test_a_count_sums_up_what_changes_and_leaves_nothing(store: Opened) -> None:
    d = store.directory("d")
    at_tx = store.commit(lambda tx: tx.begin_count(d))
    assert store.reader.quota(d) is None and store.reader.quota_directories() == {d}
    store.commit(lambda tx: tx.charge_quota(d, NamespaceUsage(2, 300)))
    assert store.commit(lambda tx: tx.counted_usage(d)) is None
    store.commit(lambda tx: tx.note_count(d, NamespaceUsage(5, 50)))
    assert store.commit(lambda tx: tx.counted_usage(d)) == NamespaceUsage(7, 350)
    for _ in range(2):
        store.commit(lambda tx: tx.end_count(d, at_tx))
        assert store.commit(lambda tx: tx.counted_usage(d)) is None
        assert not store.reader.quota_directories()


def test_queries_have_a_latest_run(store: Opened) -> None:
    d, first, second = (
        store.directory("d"),
        RecordedRun(1, "ann", "host", 7, 5, None),
        RecordedRun(2, "ann", "host", 8, 6, 9),
    )
    for run in (first, second):
        store.commit(lambda tx, run=run: tx.set_run(d, run))
        assert store.reader.run(d) == run
    assert store.reader.runs(0, 10) == [(d, second)] and store.reader.run(ROOT) is None


def test_answers_are_kept_once_and_forgotten_by_age(store: Opened) -> None:
    store.commit(lambda tx: tx.remember("r", b"yes", 100))
    assert store.reader.answer("r") == b"yes"
    assert store.commit(lambda tx: tx.forget_answers(100, 10)) == 0
    assert store.commit(lambda tx: tx.forget_answers(101, 10)) == 1
    assert store.reader.answer("r") is None


# -- the store -----------------------------------------------------------------------------------------


def test_store_keeps_what_was_committed_and_lets_one_coordinator_in(tmp_path: Path) -> None:
    first = Opened(tmp_path)
    inode = first.file("f")
    with pytest.raises(StartupError):
        open_store(tmp_path / STORE, owner="root")
    first.metadata.close()
    again = Opened(tmp_path)
    assert again.reader.child(ROOT, "f") == inode and again.epoch == first.epoch + 1
    assert again.metadata.cluster_id == first.metadata.cluster_id
    again.metadata.close()


def test_store_restores_what_it_has_backed_up(tmp_path: Path) -> None:
    directory, other, copy = tmp_path / "one", tmp_path / "other", tmp_path / "backup"
    for each in (directory, other):
        each.mkdir(mode=0o700)
    opened = Opened(directory)
    opened.file("before")
    back_up(directory / STORE, copy, lambda _done, _total: None)
    opened.file("after")
    opened.metadata.close()
    restored = restore(copy, other / STORE, lambda _done, _total: None, Random(1), replace=False)
    assert restored.replaced is None and restored.epoch > opened.epoch
    again = Opened(other)
    assert [name for name, _inode in again.reader.children(ROOT, "", 10)] == ["before"]
    assert again.reader.gc_floor_held() and again.epoch > restored.epoch
    again.metadata.close()


def test_check_finds_a_sound_store_sound_and_says_what_it_takes(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.file("f")
    opened.metadata.catch_up()
    findings = check(tmp_path / STORE, lambda _name, _number, _steps: None)
    assert findings.problems == [] and (findings.directories, findings.files) == (1, 1)
    opened.metadata.close()
    assert size_bytes(tmp_path / STORE) > 0
    assert accept(tmp_path / STORE, Random(1)) is None, "nothing is missing"
    assert all(path.name.startswith(STORE) for path in tmp_path.iterdir() if path.is_file())


def test_store_has_a_twin_in_memory() -> None:
    metadata = store_in_memory(cluster_id="c", owner="ann")
    metadata.begin_epoch()
    root = metadata.reader().inode(ROOT)
    assert root is not None and root.owner == "ann" and metadata.cluster_id == "c"


def test_chunks_of_a_new_file_are_known_without_a_look_at_the_image(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.metadata.rows.image, "group", lambda *_: pytest.fail("the image was asked"))
    inode = store.file("f")
    for position in (1, 0, 2):
        store.commit(lambda tx, at=position: tx.add_chunk(inode, at, store.chunk(at), 0))
    first = first_of_epoch(store.epoch)
    assert [each.chunk for each in store.reader.references(inode)] == [first, first + 1, first + 2]
    store.commit(lambda tx: tx.cut_references(inode, 1))
    assert [each.chunk for each in store.reader.references(inode)] == [first]
