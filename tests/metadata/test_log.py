"""SQLite's log beside the store: bounded while commits never pause, copied by who commits and by nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peacefs.coordinator.metadata.group_commit import GroupCommit, run_now
from peacefs.coordinator.metadata.sqlite import check as metadata_check
from peacefs.coordinator.metadata.sqlite import file as metadata_file
from peacefs.coordinator.metadata.sqlite import store as metadata_sqlite
from peacefs.coordinator.metadata.sqlite.backup import copy
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

_PAGE_BYTES = 4096
_PAGES = 100
_PATIENCE_S = 120.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def metadata(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    """One whose log is short."""
    monkeypatch.setattr(metadata_sqlite, "_CHECKPOINT_PAGES", _PAGES)
    made = open_store(store, owner="root")
    made.begin_epoch()
    yield made
    made.close()


def mkdirs(path: str) -> Callable[[Transaction], bool]:
    return lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1)


def make(metadata: Metadata, count: int, under: str) -> None:
    for number in range(count):
        run_now(metadata, mkdirs(f"{under}/{number}"))


def log_bytes(store: Path) -> int:
    return store.with_name(store.name + "-wal").stat().st_size


@pytest.mark.evidence("everything-is-bounded")
def test_the_log_begins_anew_however_long_commits_follow_one_another_and_others_read(
    metadata: Metadata, store: Path
) -> None:
    reader = metadata.reader()
    for turn in range(10):
        make(metadata, 20, f"/{turn}")
        with reader.view():
            assert reader.count_children(reader.follow([f"{turn}"])[1].inode, "", 100) == 20
        # One commit's own frames come on top.
        assert log_bytes(store) < 2 * _PAGES * _PAGE_BYTES


def test_a_log_that_a_long_view_has_kept_grows_no_further_when_that_has_ended(
    metadata: Metadata, store: Path
) -> None:
    reader = metadata.reader()
    with reader.view():
        assert not reader.has_children(1)
        make(metadata, 60, "/kept")
        kept = log_bytes(store)
        assert kept > 2 * _PAGES * _PAGE_BYTES
    for turn in range(4):
        make(metadata, 20, f"/{turn}")
    # Eighty commits later; on top came those of the turn in which it could be copied whole again.
    assert log_bytes(store) < kept + _PAGES * _PAGE_BYTES


def test_nobody_but_who_commits_copies_the_log_into_the_store(metadata: Metadata, store: Path) -> None:
    make(metadata, 5, "/logged")
    before = store.stat()
    reader = metadata.reader()
    assert reader.has_children(1)
    reader.close()
    copy(store, store.with_name("copy"), lambda _done, _total: None)
    assert not metadata_check.check(store, lambda _name, _number, _of: None).problems
    assert metadata_file.fault_of_rows(store) is None
    after = store.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), (
        "a second connection has made a checkpoint: see decision 24"
    )


def test_it_is_told_how_long_each_commit_took(metadata: Metadata) -> None:
    told: list[float] = []
    ticks = iter(range(100))
    commits = GroupCommit(metadata, pytest.fail, clock=lambda: float(next(ticks)), on_taken=told.append)
    try:
        for name in ("/a", "/b"):
            commits.submit(mkdirs(name)).result(_PATIENCE_S)
    finally:
        commits.close()
    assert told == [1.0, 1.0]
