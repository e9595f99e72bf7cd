"""A damaged store is restored from a backup and the later changes in its log."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from metadata.conftest import Space

from peacefs.coordinator.metadata.log.segments import list_segments
from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.protocol.errors import StartupError

STORE = "metadata.sqlite"


def _grow(directory: Path, names: range) -> None:
    metadata = open_store(directory / STORE, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    for number in names:
        space.create(f"/d/{number}", 3)
    if names.start:
        space.delete("/d/0")
    metadata.close()


def _names(directory: Path) -> list[str]:
    metadata = open_store(directory / STORE, owner="root")
    try:
        return Space(metadata).names("/d")
    finally:
        metadata.close()


def _no_progress(_done: int, _total: int) -> None:
    """Ignore progress."""


@pytest.mark.evidence("database-damaged")
def test_what_came_after_a_backup_is_taken_from_the_log(tmp_path: Path) -> None:
    directory, backup = tmp_path / "coordinator", tmp_path / "backup"
    directory.mkdir(mode=0o700)
    _grow(directory, range(5))
    back_up(directory / STORE, backup, _no_progress)
    _grow(directory, range(5, 9))
    (directory / STORE).write_bytes(b"not SQLite any more")
    restored = restore(backup, directory / STORE, _no_progress, Random(1), replace=True, with_log=True)
    assert restored.replayed >= 5
    assert _names(directory) == [str(number) for number in range(1, 9)]


@pytest.mark.evidence("database-damaged")
def test_a_log_that_does_not_go_on_from_the_backup_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    directory, backup = tmp_path / "coordinator", tmp_path / "backup"
    directory.mkdir(mode=0o700)
    _grow(directory, range(5))
    back_up(directory / STORE, backup, _no_progress)
    _grow(directory, range(5, 9))
    _grow(directory, range(9, 12))
    missing = list_segments(directory / STORE)[1][1]
    content = missing.read_bytes()
    missing.unlink()
    before = sorted(path.name for path in directory.iterdir())
    with pytest.raises(StartupError, match="restore without it"):
        restore(backup, directory / STORE, _no_progress, Random(1), replace=True, with_log=True)
    assert [name for name in before if not name.endswith(".part")] == sorted(
        path.name for path in directory.iterdir() if not path.name.endswith(".part")
    )
    missing.write_bytes(content)
    assert len(_names(directory)) == 11
