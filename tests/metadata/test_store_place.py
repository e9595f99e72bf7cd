"""Two coordinators on one store: whatever happens to the first one's files, the second cannot start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.protocol.errors import StartupError

from .conftest import Space


class First:
    """The coordinator that owns the store."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.store = directory / "metadata.sqlite"
        self.metadata = open_store(self.store, owner="root")
        self.metadata.begin_epoch()
        self.space = Space(self.metadata)
        self.space.create("/before", 10)

    def assert_goes_on(self) -> None:
        self.metadata.tend(idle=True)
        self.space.create("/after", 10)

    def assert_stops(self) -> None:
        """Check that it notices by itself, and acknowledges no commit."""
        with pytest.raises(MetadataFault, match="moved, deleted or replaced"):
            self.metadata.tend(idle=True)
        with pytest.raises(MetadataFault):
            self.space.create("/after", 10)


@pytest.fixture
def first(tmp_path: Path) -> First:
    return First(tmp_path / "coordinator")


def assert_refused(store: Path) -> None:
    with pytest.raises(StartupError, match="in use by another coordinator"):
        open_store(store, owner="root")


def test_lock_outlives_its_file(first: First) -> None:
    first.store.with_name("metadata.sqlite.lock").unlink()
    assert_refused(first.store)
    first.assert_goes_on()


def test_lock_goes_with_a_directory_that_is_renamed_and_its_owner_stops(first: First) -> None:
    moved = first.directory.rename(first.directory.with_name("moved"))
    assert_refused(moved / "metadata.sqlite")
    first.assert_stops()


def test_lock_goes_with_the_database_when_that_is_linked_elsewhere(first: First, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    linked = tmp_path / "elsewhere" / "metadata.sqlite"
    linked.hardlink_to(first.store)
    assert_refused(linked)
    first.assert_goes_on()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", ".log-0000000000000001"])
@pytest.mark.parametrize("put_back", [False, True], ids=["deleted", "replaced by a copy"])
def test_lock_is_of_no_use_to_an_owner_whose_files_are_taken_away(
    first: First, ending: str, put_back: bool
) -> None:
    first.assert_goes_on()
    path = first.store.with_name(first.store.name + ending)
    content = path.read_bytes()
    path.unlink()
    if put_back:
        # Keep another file open, so that the new one cannot get the old one's inode number.
        path.write_bytes(content)
    assert_refused(first.store)
    first.assert_stops()


def test_lock_on_a_copy_that_takes_the_directory_s_place_comes_after_its_owner_s_last_commit(first: First) -> None:
    moved = first.directory.rename(first.directory.with_name("moved"))
    shutil.copytree(moved, first.directory)
    first.assert_stops()
    second = open_store(first.store, owner="root")
    second.begin_epoch()
    assert Space(second).names("/") == ["before"]
    second.close()


def test_lock_is_free_again_after_its_owner(first: First) -> None:
    first.metadata.close()
    open_store(first.store, owner="root").close()
