"""Epochs that datanodes have seen, and what they reveal about the metadata."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.epochs import Epochs, accept, begin_epoch
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.ids import first_of_epoch
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile

SETTLED_S = 100.0


def advance(metadata: MetadataInMemory, epochs: Epochs, now_s: float) -> int:
    """Do what the service does in a tick; return the floor."""
    change = epochs.advance(now_s)
    if change is not None:
        epochs.advanced(run_now(metadata, change))
    return epochs.garbage.floor


def held(metadata: MetadataInMemory) -> bool:
    return metadata.reader().gc_floor_held()


def test_datanodes_of_earlier_epochs_and_new_ones_are_as_they_should_be() -> None:
    metadata = store_in_memory()
    metadata.begin_epoch(above=5)
    epochs = begin_epoch(metadata, 0.0)
    assert not accept(epochs, metadata, "new", 0)
    assert not accept(epochs, metadata, "old", 6)
    # It reconnects, and has seen our epoch.
    assert not accept(epochs, metadata, "old", 7)
    assert epochs.numbering.epoch == 7 and not held(metadata)


def test_a_later_epoch_holds_the_floor_and_numbers_begin_above_it() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0)
    numbering = epochs.numbering
    numbering.next()
    assert accept(epochs, metadata, "dn-1", 40)
    assert numbering.next() == first_of_epoch(41) | 1
    assert held(metadata)
    assert not accept(epochs, metadata, "dn-1", 41) and not accept(epochs, metadata, "dn-2", 40)


def test_our_own_epoch_seen_by_one_that_we_have_not_accepted_was_somebody_else_s() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0)
    assert accept(epochs, metadata, "dn-1", 1)
    assert epochs.numbering.epoch == 2 and held(metadata)


def test_a_datanode_that_comes_again_after_a_full_disk_still_shows_that_the_metadata_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has seen our own epoch, but from another coordinator. Accepting it now would hide that."""

    def refuse(**_missing: bool) -> None:
        raise MetadataFull("there is no room")

    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0)
    with monkeypatch.context() as full:
        full.setattr(metadata, "hold_gc_floor", refuse)
        with pytest.raises(MetadataFull):
            accept(epochs, metadata, "dn-1", 1)
    assert accept(epochs, metadata, "dn-1", 1)
    assert epochs.numbering.epoch == 2 and held(metadata)


@pytest.mark.evidence("directory-put-back")
def test_commit_that_a_datanode_has_heard_of_and_we_lack_is_missed_until_that_is_accepted() -> None:
    metadata = store_in_memory()
    metadata.begin_epoch()
    epochs, reader = begin_epoch(metadata, 0.0), metadata.reader()
    found = metadata.tx_durable - 1
    assert not accept(epochs, metadata, "hears-what-is-there", 1, found)
    assert not accept(epochs, metadata, "knows-no-commits", 1) and not reader.lacks_commits()
    assert accept(epochs, metadata, "heard-more", 1, found + 5)
    assert held(metadata) and reader.lacks_commits()
    assert epochs.numbering.epoch == 2, "no number of ours was drawn by anybody else"
    # The decision and the floor survive restarts, whoever connects first.
    again = begin_epoch(metadata, 0.0)
    metadata.hold_gc_floor()
    assert reader.lacks_commits() and not accept(again, metadata, "hears-what-is-there", 2, found)
    assert run_now(metadata, lambda tx: tx.accept_lost_commits())
    assert held(metadata) and not reader.lacks_commits()
    assert not accept(begin_epoch(metadata, 0.0), metadata, "heard-more", 3, found + 5)
    assert not run_now(metadata, lambda tx: tx.accept_lost_commits())


def test_commit_of_our_own_that_a_datanode_brings_back_is_not_missed() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0)
    assert not accept(epochs, metadata, "dn-1", 0)
    run_now(metadata, lambda tx: tx.raise_gc_floor(5))
    assert not accept(epochs, metadata, "dn-1", 1, metadata.tx_durable)
    assert not metadata.reader().lacks_commits()


def test_floor_follows_what_was_drawn_a_while_ago() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    first = epochs.numbering.next()
    assert advance(metadata, epochs, 10.0) == 0
    second = epochs.numbering.next()
    assert [advance(metadata, epochs, 10.0 * turn) for turn in range(2, 11)] == [0] * 9
    assert advance(metadata, epochs, 110.0) == first
    assert advance(metadata, epochs, 120.0) == second


def test_floor_counts_the_time_in_which_coordinators_served_across_their_restarts() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    drawn = epochs.numbering.next()
    for turn in range(1, 6):
        advance(metadata, epochs, 10.0 * turn)
    # It was killed and started much later. While nobody served, nobody could report.
    epochs = begin_epoch(metadata, 9000.0, settled_after_s=SETTLED_S)
    floors = [advance(metadata, epochs, 9000.0 + 10.0 * turn) for turn in range(1, 8)]
    assert floors[:5] == [0] * 5 and floors[5] == drawn


def test_floor_does_not_follow_while_the_process_is_held_up() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    epochs.numbering.next()
    advance(metadata, epochs, 10.0)
    assert advance(metadata, epochs, 5000.0) == 0, "no writer could be heard meanwhile"


def test_idle_coordinator_commits_nothing_for_its_floor() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    epochs.numbering.next()
    for turn in range(1, 20):
        advance(metadata, epochs, 10.0 * turn)
    before = metadata.reader().last_tx()
    for turn in range(20, 40):
        advance(metadata, epochs, 10.0 * turn)
    assert metadata.reader().last_tx() == before


def test_kept_chunk_is_not_garbage_until_its_writer_has_been_silent() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    kept, lost, _version = (epochs.numbering.next() for _ in range(3))
    for turn in range(1, 31):
        if turn % 5 == 0:
            run_now(metadata, lambda tx: namespace.keep_chunks(tx, "/f", [kept], int(SETTLED_S * 1000)))
        advance(metadata, epochs, 10.0 * turn)
    garbage = epochs.garbage
    assert lost < garbage.floor and garbage.is_kept(kept) and not garbage.is_kept(lost)
    with pytest.raises(AccessDenied, match="counts as garbage"):
        run_now(metadata, lambda tx: namespace.keep_chunks(tx, "/g", [lost], 1000))
    for turn in range(31, 42):
        advance(metadata, epochs, 10.0 * turn)
    assert not epochs.garbage.is_kept(kept)
    with pytest.raises(AccessDenied, match="write it again"):
        run_now(metadata, lambda tx: namespace.keep_chunks(tx, "/f", [kept], 1000))


def test_held_floor_stays_and_when_it_is_released_the_time_begins_anew() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    drawn = epochs.numbering.next()
    advance(metadata, epochs, 10.0)
    metadata.hold_gc_floor()
    for turn in range(2, 40):
        assert advance(metadata, epochs, 10.0 * turn) == 0
    assert run_now(metadata, lambda tx: tx.release_gc_floor())
    floors = [advance(metadata, epochs, 10.0 * turn) for turn in range(40, 52)]
    assert floors[:10] == [0] * 10 and floors[-1] == drawn


def test_chunk_that_was_just_published_is_not_garbage_before_anybody_was_told() -> None:
    metadata = store_in_memory()
    epochs = begin_epoch(metadata, 0.0, settled_after_s=SETTLED_S)
    published, lost, _version = (epochs.numbering.next() for _ in range(3))
    written = WrittenChunk(published, published, 10, 0, [Receipt("dn-1", b"")])
    file = NewFile(path="/f", user="ann", replication=3, block_bytes=1 << 26, request_id="r")
    run_now(metadata, lambda tx: namespace.complete_file(tx, file, [written], 1))
    for turn in range(1, 15):
        advance(metadata, epochs, 10.0 * turn)
    assert published < lost < epochs.garbage.floor
    assert epochs.garbage.is_kept(published) and not epochs.garbage.is_kept(lost)
