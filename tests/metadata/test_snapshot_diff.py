"""Differences between two snapshots, or a snapshot and now, as `hdfs snapshotDiff` reports them."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace import snapshot_diff
from peacefs.coordinator.namespace.snapshot_diff import DiffKind
from peacefs.protocol.errors import (
    SnapshotRefused,
)

from .conftest import Space
from .snapshot_world import set_mode


def differences(space: Space, older: str, newer: str = "") -> list[tuple[str, ...]]:
    directory = space.status("/d").inode

    def reader(name: str) -> Reader:
        snapshot = space.reader.snapshot(directory, name)
        return space.reader.at(snapshot.at_tx, directory) if snapshot else space.reader

    steps = snapshot_diff.compare(reader(older), reader(newer), directory)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return [
                (found.kind.value, found.path, *([found.target] if found.kind is DiffKind.RENAME else []))
                for found in finished.value
            ]


def test_a_comparison_names_what_was_made_changed_moved_and_deleted(grown: Space) -> None:
    grown.take_snapshot("/d", "1")
    assert differences(grown, "1") == []
    grown.create("/d/replaced", 8, overwrite=True)
    grown.rename("/d/moved", "/d/tree/0/moved")
    grown.delete("/d/deleted")
    grown.delete("/d/tree/1")
    set_mode(grown, "/d/chmod", 0o600)
    grown.create("/d/new/er", 1)
    expected = [
        ("MODIFY", ""),
        ("MODIFY", "chmod"),
        ("DELETE", "deleted"),
        ("RENAME", "moved", "tree/0/moved"),
        ("CREATE", "new"),
        ("DELETE", "replaced"),
        ("CREATE", "replaced"),
        ("MODIFY", "tree"),
        ("MODIFY", "tree/0"),
        ("DELETE", "tree/1"),
    ]
    assert differences(grown, "1") == expected
    grown.take_snapshot("/d", "2")
    grown.delete("/d/tree")
    assert differences(grown, "1", "2") == expected
    assert ("CREATE", "tree") in differences(grown, "", "1")


def test_a_tree_that_is_too_large_is_not_compared(grown: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_diff, "snapshot_diff_entries_max", 10)
    grown.take_snapshot("/d", "1")
    with pytest.raises(SnapshotRefused, match="more than 10 entries"):
        differences(grown, "1")
