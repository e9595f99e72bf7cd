"""Backups show one moment although commits continue; a restore continues with higher numbers."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path
from random import Random

import pytest

from peacefs.coordinator.metadata.sqlite import backup as metadata_backup
from peacefs.coordinator.metadata.sqlite import file as metadata_file
from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.protocol.errors import FileAlreadyExists, PeacefsError, StartupError

from .conftest import Space
from .store_images import image_of


def quiet(_done: int, _total: int) -> None:
    pass


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a closed store with some files."""
    (tmp_path / "coordinator").mkdir()
    path = tmp_path / "coordinator" / "metadata.sqlite"
    metadata = open_store(path, owner="root")
    metadata.begin_epoch()
    Space(metadata).create_many([f"/d/{number:04}" for number in range(300)])
    metadata.close()
    return path


def names(path: Path, directory: str = "/d") -> list[str]:
    metadata = open_store(path, owner="root")
    try:
        return Space(metadata).names(directory)
    finally:
        metadata.close()


def epoch_begun(path: Path) -> int:
    metadata = open_store(path, owner="root")
    try:
        return metadata.begin_epoch()
    finally:
        metadata.close()


def restored(backup: Path, directory: Path, seed: int = 1) -> Path:
    path = directory / "metadata.sqlite"
    restore(backup, path, quiet, Random(seed), replace=True)
    return path


def test_a_backup_is_one_file_with_all_that_was_there(store: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    back_up(store, tmp_path / "backup", lambda done, total: told.append((done, total)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["backup", "coordinator"]
    assert told[-1][0] == told[-1][1] == (tmp_path / "backup").stat().st_size
    assert check(tmp_path / "backup", lambda *_: None).problems == []
    assert names(restored(tmp_path / "backup", tmp_path / "new")) == names(store)


def test_commits_go_on_while_it_is_made_and_it_shows_one_moment(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_backup, "backup_pages_per_step", 1)
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    steps = []

    def commit_two_files(_done: int, _total: int) -> None:
        # Commit from the copying thread: this would never return if the copy blocked commits.
        steps.append(len(steps))
        space.create_many([f"/d/later-{len(steps)}", f"/e/later-{len(steps)}"])

    back_up(store, tmp_path / "backup", commit_two_files)
    assert len(steps) > 20
    assert len(space.names("/d")) == 300 + len(steps)
    metadata.close()
    path = restored(tmp_path / "backup", tmp_path / "new")
    # The backup has the image and the log, so it has both names of each commit, or none.
    later = [set(names(path, "/d")[300:]), set(names(path, "/e"))]
    assert later[0] == later[1] == {f"later-{number}" for number in range(1, len(later[0]) + 1)}


def test_copying_beside_a_busy_writer_comes_to_an_end(store: Path, tmp_path: Path) -> None:
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space, stop = Space(metadata), threading.Event()

    def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            space.create(f"/busy/{number}", 10)
            number += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        back_up(store, tmp_path / "backup", quiet)
    finally:
        stop.set()
        writer.join()
        metadata.close()
    assert check(tmp_path / "backup", lambda *_: None).problems == []


def test_a_file_that_is_there_is_replaced_only_when_asked_to(store: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("precious")
    with pytest.raises(FileAlreadyExists):
        back_up(store, tmp_path / "backup", quiet)
    assert (tmp_path / "backup").read_text() == "precious"
    back_up(store, tmp_path / "backup", quiet, replace=True)
    assert (tmp_path / "backup").stat().st_size > 10_000


def test_a_copy_that_fails_leaves_nothing(store: Path, tmp_path: Path) -> None:
    def fail(_done: int, _total: int) -> None:
        raise PeacefsError("no more")

    with pytest.raises(PeacefsError, match="no more"):
        back_up(store, tmp_path / "backup", fail)
    assert [file.name for file in tmp_path.iterdir()] == ["coordinator"]
    with pytest.raises(PeacefsError, match="nowhere"):
        back_up(store, tmp_path / "nowhere" / "backup", quiet)


def test_backup_refuses_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(StartupError, match="not peacefs metadata"):
        back_up(tmp_path / "letter", tmp_path / "backup", quiet)


def test_a_restored_store_holds_the_floor(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    metadata = open_store(restored(tmp_path / "backup", tmp_path / "new"), owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    space.commit(lambda tx: tx.raise_gc_floor(10**15))
    assert space.reader.gc_floor_held() and space.reader.floor() == 0
    assert space.commit(lambda tx: tx.release_gc_floor()) is True
    space.commit(lambda tx: tx.raise_gc_floor(10**15))
    assert space.reader.floor() == 10**15
    assert space.commit(lambda tx: tx.release_gc_floor()) is False
    metadata.close()


def test_a_backup_restored_twice_repeats_no_epoch(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    last = epoch_begun(store)
    first = epoch_begun(restored(tmp_path / "backup", tmp_path / "first", seed=1))
    second = epoch_begun(restored(tmp_path / "backup", tmp_path / "second", seed=2))
    assert len({last, first, second}) == 3 and min(first, second) > last


def test_the_epoch_of_the_store_that_is_replaced_counts_too(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    metadata = open_store(store, owner="root")
    metadata.begin_epoch(above=70_000)
    metadata.close()
    made = restore(tmp_path / "backup", store, quiet, Random(1), replace=True)
    assert made.epoch > 70_001
    assert made.replaced == store.with_name("metadata.sqlite.replaced")
    assert epoch_begun(made.replaced) == 70_002


def test_a_store_that_is_there_is_replaced_only_when_asked_to(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    before = store.read_bytes()
    with pytest.raises(StartupError, match="--force"):
        restore(tmp_path / "backup", store, quiet, Random(1), replace=False)
    assert store.read_bytes() == before


def test_a_coordinator_that_runs_keeps_its_store(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    metadata = open_store(store, owner="root")
    with pytest.raises(StartupError, match="in use by another coordinator"):
        restore(tmp_path / "backup", store, quiet, Random(1), replace=True)
    metadata.close()


def test_a_damaged_backup_is_not_restored(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    damaged = bytearray((tmp_path / "backup").read_bytes())
    damaged[8192:16384] = b"\xff" * 8192
    (tmp_path / "backup").write_bytes(damaged)
    before = store.read_bytes()
    with pytest.raises(StartupError, match="damaged"):
        restore(tmp_path / "backup", store, quiet, Random(1), replace=True)
    assert store.read_bytes() == before


def test_restore_refuses_what_is_no_backup_and_says_what_one_is(store: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no backup")
    (tmp_path / "directory").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE t (x)")
    before = store.read_bytes()
    for name in ("text", "directory", "other"):
        with pytest.raises(StartupError, match=r"Nothing was changed\. A backup is a file that") as refused:
            restore(tmp_path / name, store, quiet, Random(1), replace=True)
        assert str(tmp_path / name) in refused.value.message and "\n" not in refused.value.message
    assert store.read_bytes() == before


def test_the_log_of_the_old_store_is_not_taken_for_the_new_one_s(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    killed = open_store(store, owner="root")
    killed.begin_epoch()
    Space(killed).create("/in/the/log", 10)
    image = image_of(store)
    killed.close()
    for ending, content in image.items():
        store.with_name(store.name + ending).write_bytes(content)
    made = restore(tmp_path / "backup", store, quiet, Random(1), replace=True)
    assert names(store, "/") == ["d"]
    assert made.replaced is not None
    assert names(made.replaced, "/in/the") == ["log"]


@pytest.mark.evidence("half-written-files")
def test_after_a_crash_in_the_middle_no_coordinator_starts_until_it_is_done_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(store, tmp_path / "backup", quiet)

    class Crash(BaseException):
        pass

    def crash(_store: Path) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(metadata_backup, "sync_directory", crash)
        with pytest.raises(Crash):
            restore(tmp_path / "backup", store, quiet, Random(1), replace=True)
    assert not store.exists()
    with pytest.raises(StartupError, match=r"restore of .* was cut short"):
        open_store(store, owner="root")
    restore(tmp_path / "backup", store, quiet, Random(2), replace=False)
    assert len(names(store)) == 300
    assert not metadata_file.restoring(store).exists()


def test_a_backup_has_no_log_of_its_own(store: Path, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup", quiet)
    connection = sqlite3.connect(tmp_path / "backup")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
