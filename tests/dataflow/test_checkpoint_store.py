"""The contract of checkpoint stores: in memory, in a directory, and on peacefs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.hosts.checkpoint_store import (
    DirectoryCheckpoints,
    MemoryCheckpoints,
    UnitCheckpoints,
    delete,
    name_of,
    retain,
)
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.protocol.errors import FileNotFound

_BOUNDS = Bounds(page_bytes=8192, state_bytes_max=1 << 26)


@pytest.fixture(params=["memory", "directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnitCheckpoints]:
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


def put(store: UnitCheckpoints, unit: str, checkpoint: CheckpointId, value: str) -> None:
    """Store a checkpoint of a unit whose state is one value."""
    state = UnitStates(store, _BOUNDS).new(unit)
    state.cell("value", None).set(value)
    state.capture(sequence_of(checkpoint), {"inputs": {}, "outputs": {}}).start().result()


def value_of(store: UnitCheckpoints, unit: str, checkpoint: CheckpointId) -> str:
    state = UnitStates(store, _BOUNDS).load(unit, checkpoint)
    assert state.edges() == {"inputs": {}, "outputs": {}}
    value: str = state.cell("value", None).get()
    return value


def test_checkpoint_is_loaded_as_it_was_stored(store: UnitCheckpoints) -> None:
    put(store, "a/unit", (1, 1), "old")
    put(store, "a/unit", (1, 2), "new" * 10_000)
    put(store, "..other", (1, 2), "other")
    assert value_of(store, "a/unit", (1, 2)) == "new" * 10_000
    assert value_of(store, "a/unit", (1, 1)) == "old"
    assert value_of(store, "..other", (1, 2)) == "other"


def test_checkpoint_that_was_deleted_is_gone(store: UnitCheckpoints) -> None:
    put(store, "unit", (1, 1), "gone")
    delete(store, "unit", (1, 1))
    delete(store, "unit", (1, 1))
    with pytest.raises(FileNotFound, match="checkpoint"):
        value_of(store, "unit", (1, 1))


def test_checkpoints_that_are_older_than_those_retained_go(store: UnitCheckpoints) -> None:
    """Unrecorded checkpoints of earlier starts go, too; checkpoints of other units stay."""
    for checkpoint in ((1, 5), (1, 9), (2, 1), (2, 2)):
        put(store, "unit", checkpoint, "kept")
    put(store, "unit-1", (1, 1), "kept")
    retain(store, "unit", (2, 1))
    assert store.pages().sequences(name_of("unit")) == [2_000_001, 2_000_002]
    assert value_of(store, "unit-1", (1, 1)) == "kept"


def test_record_is_replaced_whole(store: UnitCheckpoints) -> None:
    assert store.recorded() is None
    store.record(b"one")
    store.record(b"another")
    assert store.recorded() == b"another"


@pytest.mark.cluster
def test_replicas_of_a_checkpoint_are_told_by_datanode(shared_cluster: LocalCluster, home: str) -> None:
    """With three replicas on three datanodes, each has the whole checkpoint for a recovery beside it."""
    store = PeaceCheckpoints(shared_cluster.http_address, home, user="alice")
    put(store, "unit", (1, 1), "value" * 10_000)
    held = store.replicas("unit", (1, 1))
    store.close()
    assert set(held) == {member.node for member in shared_cluster.datanodes}
    (size,) = set(held.values())
    assert size > 8 * _BOUNDS.page_bytes
