"""Entries that did not fit are undone once. A late writer or a late refusal does not write or undo anything."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.log.entry import decode_content
from peacefs.coordinator.metadata.log.port import Sealed
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.metadata.tables import ENTRY
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path


def names_in_log(metadata: MetadataInMemory) -> list[str]:
    changes = [change for entry in metadata.log.entries for change in decode_content(entry.content).changes]
    return [row[1] for table, row in changes if table == ENTRY]


def new_store() -> MetadataInMemory:
    metadata = store_in_memory()
    metadata.begin_epoch()
    return metadata


def make(metadata: MetadataInMemory, name: str) -> None:
    path = parse_path(f"/{name}")
    outcome = metadata.attempt(lambda tx: namespace.mkdirs(tx, path, "ann", 0o755, 1))
    assert outcome.error is None


def seal_and_refuse(metadata: MetadataInMemory, name: str) -> Sealed:
    """Seal an entry for the writer's thread, and refuse it for lack of room before that thread writes it."""
    make(metadata, name)
    sealed = metadata.seal()
    assert sealed is not None
    metadata.log.fails = LogFull("full")
    with pytest.raises(MetadataFull):
        metadata.flush()
    metadata.log.fails = None
    return sealed


def test_entry_that_was_refused_is_not_written_by_a_thread_that_comes_to_it_later() -> None:
    metadata = new_store()
    late = seal_and_refuse(metadata, "refused")
    with pytest.raises(MetadataFull):
        metadata.write(late)
    make(metadata, "taken")
    metadata.flush()
    assert names_in_log(metadata) == ["taken"]
    assert names_in_log(MetadataInMemory(metadata.image, metadata.log)) == ["taken"]


def test_refusal_that_is_heard_late_undoes_nothing_that_was_done_since() -> None:
    metadata = new_store()
    late = seal_and_refuse(metadata, "refused")
    make(metadata, "since")
    metadata.refused(late, MetadataFull("full"))
    metadata.flush()
    assert names_in_log(metadata) == ["since"]
