"""The contract of checkpoint stores, kept by the one in memory and by a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.hosts.checkpoint_store import CheckpointStore, DirectoryCheckpoints, MemoryCheckpoints
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.protocol.errors import ChecksumMismatch, FileNotFound

_PARTS = {"edges": b"one", "state windows/panes": b"", "rows of in": bytes(range(256)) * 100}


@pytest.fixture(params=["memory", "directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointStore]:
    match request.param:
        case "memory":
            yield MemoryCheckpoints()
        case "directory":
            yield DirectoryCheckpoints(tmp_path)
        case _:
            cluster: LocalCluster = request.getfixturevalue("shared_cluster")
            stored = PeaceCheckpoints(cluster.http_address, request.getfixturevalue("home"), user="alice")
            yield stored
            stored.close()


def test_checkpoint_is_loaded_as_it_was_stored(store: CheckpointStore) -> None:
    store.store("a/unit", (1, 1), {"edges": b"old"})
    store.store("a/unit", (1, 2), _PARTS)
    store.store("other", (1, 2), {"edges": b"other"})
    assert store.load("a/unit", (1, 2)) == _PARTS
    assert store.load("other", (1, 2)) == {"edges": b"other"}


def test_checkpoint_that_was_deleted_is_gone(store: CheckpointStore) -> None:
    store.store("unit", (1, 1), _PARTS)
    store.delete("unit", (1, 1))
    store.delete("unit", (1, 1))
    with pytest.raises(FileNotFound, match="checkpoint"):
        store.load("unit", (1, 1))


def test_checkpoint_that_was_cut_short_is_not_there(tmp_path: Path) -> None:
    """A dead writer's remains are not taken for a checkpoint, and the next attempt replaces them."""
    DirectoryCheckpoints(tmp_path).store("unit", (1, 1), _PARTS)
    (tmp_path / "unit" / "1-1").rename(tmp_path / "unit" / ".1-2")
    store = DirectoryCheckpoints(tmp_path)
    with pytest.raises(FileNotFound):
        store.load("unit", (1, 2))
    store.store("unit", (1, 2), {"edges": b"new"})
    assert store.load("unit", (1, 2)) == {"edges": b"new"}


def test_checkpoint_with_a_rotten_part_is_refused(tmp_path: Path) -> None:
    store = DirectoryCheckpoints(tmp_path)
    store.store("unit", (1, 1), _PARTS)
    file = tmp_path / "unit" / "1-1" / "edges"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ChecksumMismatch, match="is not what was stored"):
        store.load("unit", (1, 1))
