"""SQLite's own log stays bounded during continuous commits, and only the writer copies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite import check as metadata_check
from peacefs.coordinator.metadata.sqlite import file as metadata_file
from peacefs.coordinator.metadata.sqlite import image
from peacefs.coordinator.metadata.sqlite.backup import copy
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

_PAGE_BYTES = 4096
_PAGES = 100


def make(metadata: Metadata, count: int, under: str) -> None:
    for number in range(count):
        path = parse_path(f"{under}/{number}")
        run_now(metadata, lambda tx, path=path: namespace.mkdirs(tx, path, "ann", 0o755, 1))  # type: ignore[misc]


@pytest.mark.evidence("everything-is-bounded")
def test_log_of_sqlite_begins_anew_however_long_commits_follow_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "_CHECKPOINT_PAGES", _PAGES)
    store = tmp_path / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    for turn in range(10):
        for number in range(4):
            make(metadata, 5, f"/{turn}/{number}")
            metadata.catch_up()
        # Plus the pages of one transaction.
        assert store.with_name(store.name + "-wal").stat().st_size < 2 * _PAGES * _PAGE_BYTES
    assert metadata.rows.changes_waiting == 0
    metadata.close()


def test_nobody_but_who_writes_the_image_copies_the_log_of_sqlite(tmp_path: Path) -> None:
    store = tmp_path / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    make(metadata, 5, "/logged")
    metadata.catch_up()
    make(metadata, 5, "/behind")
    before = store.stat()
    assert metadata.reader().has_children(1)
    copy(store, store.with_name("copy"), lambda _done, _total: None)
    assert not metadata_check.check(store, lambda _name, _number, _of: None).problems
    assert metadata_file.fault_of_rows(store) is None
    after = store.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), (
        "a second connection has made a checkpoint: see decision 70"
    )
    metadata.close()
