"""Opening a store: a sound one opens; a faulty one is refused with advice and left unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from peacefs.coordinator.metadata.sqlite.schema import OLDEST_SCHEMA, SCHEMA, migrate
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import epoch_of

from .conftest import Space
from .store_images import image_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


def fill(path: Path, files: int = 300) -> str:
    """Make a store with some files, and close it. Return its cluster id."""
    metadata = open_store(path, owner="root")
    metadata.begin_epoch()
    Space(metadata).create_many([f"/d/{number:04}" for number in range(files)])
    metadata.close()
    return metadata.cluster_id


def copy_as_killed(path: Path, target: Path) -> Path:
    """Return a copy whose last commits are still in its write-ahead log, as kill -9 leaves it."""
    metadata = open_store(path, owner="root")
    metadata.begin_epoch()
    Space(metadata).create("/in/the/log", 10)
    target.mkdir()
    for part, content in image_of(path).items():
        (target / (path.name + part)).write_bytes(content)
    metadata.close()
    return target / path.name


def contents(directory: Path) -> dict[str, bytes]:
    """Return all content that could be lost; the lock and the log's index have none."""
    return {
        file.name: file.read_bytes()
        for file in directory.iterdir()
        if not file.name.endswith((".lock", "-shm", "-wal.sums")) and file.stat().st_size
    }


def test_a_store_is_made_once_and_found_again(path: Path) -> None:
    cluster_id = fill(path)
    again = open_store(path, owner="somebody else")
    space = Space(again)
    assert again.cluster_id == cluster_id and len(cluster_id) == 32
    assert len(space.names("/d")) == 300
    assert space.status("/").owner == "root"
    again.close()
    endings = sorted(file.name.removeprefix(path.name) for file in path.parent.iterdir())
    assert endings == ["", "-wal.sums", ".commits", ".lock", ".log-0000000000000001", ".sums"]


def test_two_stores_are_two_clusters(tmp_path: Path) -> None:
    assert fill(tmp_path / "a", 0) != fill(tmp_path / "b", 0)


def test_two_coordinators_cannot_have_the_same_store(path: Path) -> None:
    first = open_store(path, owner="root")
    with pytest.raises(StartupError, match="in use by another coordinator"):
        open_store(path, owner="root")
    first.close()
    open_store(path, owner="root").close()


def test_a_directory_that_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(StartupError, match="Is its directory there"):
        open_store(path / "deeper", owner="root")


@pytest.mark.evidence("half-written-files")
def test_remains_of_an_interrupted_creation_are_cleared_away(path: Path) -> None:
    path.with_name("metadata.sqlite.new").write_bytes(b"half a store")
    fill(path, 1)
    parts = {name.removeprefix("metadata.sqlite") for name in contents(path.parent)}
    assert parts == {"", ".commits", ".log-0000000000000001", ".sums"}


def overwrite_with_text(path: Path) -> None:
    path.write_bytes(b"# not a database\n" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_within_the_first_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def flip_bytes_of_every_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 4096):
        data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)


def damage_the_schema(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:200] = b"\xaa" * 100
    path.write_bytes(data)


def put_another_database_there(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title)")
    connection.commit()
    connection.close()


def drop_the_root(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM inode WHERE inode = 1")
    connection.commit()
    connection.close()


def make_it_of_the_future(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()


def make_it_older_than_the_first_release(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {OLDEST_SCHEMA - 1}")
    connection.close()


def lose_all_but_the_log(path: Path) -> None:
    for file in path.parent.iterdir():
        if ".log-" not in file.name:
            file.unlink()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (overwrite_with_text, "not peacefs metadata: it does not begin as an SQLite file"),
        (empty, "not peacefs metadata: it does not begin as an SQLite file"),
        (cut_in_half, "damaged"),
        (cut_within_the_first_page, "damaged"),
        (flip_bytes_of_every_page, "damaged"),
        (damage_the_schema, "damaged"),
        (put_another_database_there, "an SQLite file, but not peacefs metadata"),
        (drop_the_root, "page 38 is not what was written, and its rows are not those that were committed"),
        (make_it_of_the_future, r"newer peacefs: its schema is \d+, this one knows \d+"),
        (make_it_older_than_the_first_release, "written before peacefs 0.1.0"),
        (lose_all_but_the_log, "the metadata was lost"),
    ],
)
@pytest.mark.evidence("database-damaged")
def test_unusable_store_is_refused_with_advice_and_left_as_it_is(
    path: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    fill(path)
    damage(path)
    before = contents(path.parent)
    for _ in range(2):
        with pytest.raises(StartupError, match=complaint) as refused:
            open_store(path, owner="root")
        assert "Nothing was changed" in refused.value.message and "estore" in refused.value.message
        assert contents(path.parent) == before


@pytest.mark.parametrize("damage", [cut_in_half, flip_bytes_of_every_page, make_it_of_the_future])
def test_commits_in_the_log_are_kept_when_the_file_is_refused(
    path: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    fill(path)
    killed = copy_as_killed(path, tmp_path / "killed")
    if damage is make_it_of_the_future:
        data = bytearray(killed.read_bytes())
        data[63] = SCHEMA + 1
        killed.write_bytes(data)
    else:
        damage(killed)
    before = contents(killed.parent)
    with pytest.raises(StartupError):
        open_store(killed, owner="root")
    assert contents(killed.parent) == before


def test_a_killed_store_is_recovered_from_its_log(path: Path, tmp_path: Path) -> None:
    fill(path)
    metadata = open_store(copy_as_killed(path, tmp_path / "killed"), owner="root")
    assert Space(metadata).names("/in/the") == ["log"]
    metadata.close()


def test_file_that_lost_its_last_page_is_refused(path: Path) -> None:
    fill(path)
    open_store(path, owner="root").close()
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(StartupError, match="damaged"):
        open_store(path, owner="root")


def test_each_epoch_is_above_the_last_and_above_what_was_seen(path: Path) -> None:
    epochs = []
    for seen in (0, 0, 7, 3):
        metadata = open_store(path, owner="root")
        epochs.append(metadata.begin_epoch(seen))
        metadata.close()
    assert epochs == [1, 2, 8, 9]


def test_numbers_of_inodes_begin_with_the_epoch_so_that_a_restored_backup_repeats_none(path: Path) -> None:
    fill(path, 1)
    backup = contents(path.parent)
    metadata = open_store(path, owner="root")
    lost_epoch = metadata.begin_epoch()
    space = Space(metadata)
    space.create("/lost")
    lost = space.status("/lost").inode
    metadata.close()
    for name in contents(path.parent):
        (path.parent / name).unlink()
    for name, content in backup.items():
        (path.parent / name).write_bytes(content)
    metadata = open_store(path, owner="root")
    assert metadata.begin_epoch() == lost_epoch
    assert metadata.begin_epoch(lost_epoch) == lost_epoch + 1, "a datanode has told of the lost epoch"
    space = Space(metadata)
    space.create("/new")
    assert epoch_of(space.status("/new").inode) == lost_epoch + 1 > epoch_of(lost)
    metadata.close()


def test_the_floor_rises_is_kept_and_can_be_held_for_good(path: Path) -> None:
    metadata = open_store(path, owner="root")
    space = Space(metadata)
    assert space.reader.floor() == 0
    for floor in (50, 40):
        space.commit(lambda tx, floor=floor: tx.raise_gc_floor(floor))
        assert space.reader.floor() == 50
    metadata.hold_gc_floor()
    metadata.close()
    metadata = open_store(path, owner="root")
    space = Space(metadata)
    space.commit(lambda tx: tx.raise_gc_floor(60))
    assert space.reader.floor() == 50
    metadata.close()


def test_an_older_schema_is_brought_up_to_date_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ("CREATE TABLE a (x)",), ("CREATE TABLE b (x)", "INSERT INTO a VALUES (1)")
    connection = apsw.Connection(":memory:")
    monkeypatch.setattr("peacefs.coordinator.metadata.sqlite.schema.MIGRATIONS", {5: first})
    migrate(connection)
    monkeypatch.setattr("peacefs.coordinator.metadata.sqlite.schema.MIGRATIONS", {5: first, 6: second})
    migrate(connection)
    migrate(connection)
    assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
    assert connection.execute("PRAGMA user_version").fetchone() == (6,)
    connection.close()
