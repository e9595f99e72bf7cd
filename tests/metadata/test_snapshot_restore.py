"""Restoring a directory from a snapshot: at once, and without copying data."""

from __future__ import annotations

from pathlib import Path

import pytest

from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import snapshot_restore
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import (
    SnapshotRefused,
)

from .conftest import Space
from .snapshot_world import change_everything, retired, tree


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_a_directory_is_given_back_what_a_snapshot_shows(grown: Space, limit: int) -> None:
    before = tree(grown, "/d")
    grown.take_snapshot("/d", "s")
    change_everything(grown)
    grown.create("/d/new/er", 1)
    grown.restore("/d", "s", limit)
    assert tree(grown, "/d") == before, "down to the chunks: no data was copied"
    grown.reclaim()
    assert tree(grown, "/d/.snapshot/s") == before
    grown.check_references()
    grown.drop_snapshot("/d", "s")
    grown.reclaim()
    assert tree(grown, "/d") == before
    assert retired(grown) == 0
    grown.check_references()


def test_nobody_sees_half_a_restoration_and_one_that_was_given_up_leaves_nothing(grown: Space) -> None:
    grown.take_snapshot("/d", "s")
    change_everything(grown)
    before = tree(grown, "/d")
    rows = grown.sql("SELECT count(*) FROM inode"), grown.sql("SELECT count(*) FROM entry")
    job = grown.commit(lambda tx: snapshot_restore.begin(tx, parse_path("/d"), "s"))
    job = grown.commit(lambda tx: snapshot_restore.copy_step(tx, job, 5))
    assert tree(grown, "/d") == before
    assert grown.reclaim() == []
    grown.commit(lambda tx: snapshot_restore.give_up(tx, job))
    grown.reclaim()
    assert (grown.sql("SELECT count(*) FROM inode"), grown.sql("SELECT count(*) FROM entry")) == rows
    grown.check_references()


def test_a_restoration_that_a_start_finds_unfinished_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    metadata = open_store(path, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    space.create("/d/f", 1)
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    job = space.commit(lambda tx: snapshot_restore.begin(tx, parse_path("/d"), "s"))
    space.commit(lambda tx: snapshot_restore.copy_step(tx, job, 5))
    metadata.begin_epoch(70)  # Another epoch of the same coordinator does not touch it.
    assert space.reclaim() == []
    assert space.sql("SELECT count(*) FROM staged") == [(1,)]
    metadata.close()

    again = open_store(path, owner="root")
    again.begin_epoch()
    space = Space(again)
    space.reclaim()
    assert space.sql("SELECT count(*) FROM inode") == [(3,)]
    assert space.sql("SELECT count(*) FROM staged") == [(0,)]
    space.check_references()
    again.close()


def test_a_restoration_ends_when_its_snapshot_goes_or_is_another(grown: Space) -> None:
    grown.take_snapshot("/d", "s")
    job = grown.commit(lambda tx: snapshot_restore.begin(tx, parse_path("/d"), "s"))
    grown.drop_snapshot("/d", "s")
    grown.take_snapshot("/d", "s")
    with pytest.raises(SnapshotRefused, match="replaced meanwhile"):
        grown.commit(lambda tx: snapshot_restore.copy_step(tx, job, 5))
