"""Conversion of a store of the previous release: its file becomes the image, a copy stays, losses are found."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from peacefs.coordinator.metadata.sqlite import commit_record
from peacefs.coordinator.metadata.sqlite import store as metadata_store
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.commit_record import Acknowledged
from peacefs.coordinator.metadata.sqlite.connections import connect
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.protocol.errors import StartupError

from .conftest import Space
from .store_images import Image, flip, image_of, put

_NAMES = [f"{number:02}" for number in range(20)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Make a store of the previous release: schema 16, without a digest and a log of ours."""
    (tmp_path / "old").mkdir()
    store = tmp_path / "old" / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    Space(metadata).create_many([f"/{name}" for name in _NAMES])
    metadata.close()
    for segment in store.parent.glob("*.log-*"):
        segment.unlink()
    with contextlib.closing(connect(store)) as connection:
        connection.execute(
            "BEGIN IMMEDIATE; DELETE FROM meta WHERE key LIKE 'log_%' OR key = 'digest'; "
            "PRAGMA user_version = 16; COMMIT"
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store


def names(store: Path) -> list[str]:
    metadata = open_store(store, owner="root")
    try:
        metadata.begin_epoch()
        return Space(metadata).names("/")
    finally:
        metadata.close()


def test_store_of_the_release_before_is_converted_and_a_copy_is_kept(old: Path) -> None:
    assert names(old) == _NAMES
    kept = old.with_name("metadata.sqlite.schema-16")
    with contextlib.closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (16,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = connection.execute("SELECT name FROM entry WHERE parent = 1 ORDER BY name").fetchall()
    assert [name for (name,) in found] == _NAMES
    copy = kept.read_bytes()
    assert names(old) == _NAMES and kept.read_bytes() == copy, "it is converted once"
    assert check(old, lambda *_: None).problems == []


@pytest.mark.evidence("half-written-files")
@pytest.mark.parametrize("at", ["migrate", "copy"])
def test_conversion_that_was_cut_short_is_done_again(old: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> bool:
        raise Killed

    with monkeypatch.context() as patched:
        if at == "migrate":
            patched.setattr(metadata_store, "migrate", kill)
        else:
            patched.setattr(metadata_store.metadata_file, "sync", kill)
        with pytest.raises(Killed):
            open_store(old, owner="root")
    old.with_name("metadata.sqlite.schema-16.part").write_bytes(b"half a copy")
    assert names(old) == _NAMES
    assert not old.with_name("metadata.sqlite.schema-16.part").exists()
    assert old.with_name("metadata.sqlite.schema-16").exists()


def test_copy_that_is_put_back_is_not_mixed_with_the_log_of_the_time_after(old: Path) -> None:
    assert names(old) == _NAMES
    metadata = open_store(old, owner="root")
    metadata.begin_epoch()
    Space(metadata).create_many(["/after"])
    metadata.close()
    for ending in (".sums", ".commits", "-wal.sums"):
        old.with_name(old.name + ending).unlink(missing_ok=True)
    kept = old.with_name("metadata.sqlite.schema-16")
    old.write_bytes(kept.read_bytes())
    with pytest.raises(StartupError, match=r"metadata\.sqlite\.log-0+1 .* move it away"):
        open_store(old, owner="root")
    assert old.read_bytes() == kept.read_bytes()
    for segment in old.parent.glob("*.log-*"):
        segment.unlink()
    assert names(old) == _NAMES


@pytest.fixture
def killed(old: Path) -> Image:
    """Make such a store whose last, acknowledged commits are in SQLite's log alone."""
    with contextlib.closing(connect(old)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(10):
            connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'last_tx'")
            connection.execute("UPDATE meta SET value = ? WHERE key = 'served_ms'", (number,))
        cluster_id = connection.execute("SELECT value FROM meta WHERE key = 'cluster_id'").get
        last_tx = connection.execute("SELECT value FROM meta WHERE key = 'last_tx'").get
        image = image_of(old)
    commit_record.path_of(old).unlink()
    record = commit_record.CommitRecord.open(old, cluster_id, Acknowledged(last_tx, 1, 1_000_000))
    record.close()
    return {**image, ".commits": commit_record.path_of(old).read_bytes()}


@pytest.mark.evidence("commits-lost")
def test_store_of_the_release_before_that_lost_commits_is_refused(killed: Image, tmp_path: Path) -> None:
    log = killed["-wal"]
    assert len(log) > 10 * 4096
    without = {part: content for part, content in killed.items() if part != "-wal"}
    for image in (
        without,
        {**killed, "-wal": log[: len(log) // 2]},
        {**killed, "-wal": flip(log, 8 * (len(log) // 2))},
        {
            **{part: content for part, content in killed.items() if part != ".commits"},
            "-wal": flip(log, 8 * 4200 * 5),
        },
    ):
        store = put(image, tmp_path / "store")
        before = image_of(store)
        with pytest.raises(StartupError, match="has lost changes that were acknowledged"):
            open_store(store, owner="root")
        assert image_of(store) == before
