"""Who has seen which epoch, and what that tells about the metadata."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import SqliteMetadata
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.protocol.ids import first_of_epoch


def held(metadata: SqliteMetadata) -> bool:
    return metadata.reader().floor_held()


def test_datanodes_of_earlier_epochs_and_new_ones_are_as_they_should_be() -> None:
    metadata = SqliteMetadata.in_memory()
    metadata.begin_epoch(above=5)
    epochs = Epochs(metadata)
    assert not epochs.accept("new", 0)
    assert not epochs.accept("old", 6)
    # It comes again, over a new connection, and has seen us.
    assert not epochs.accept("old", 7)
    assert epochs.numbering.epoch == 7 and not held(metadata)


def test_a_later_epoch_holds_the_floor_and_numbers_begin_above_it() -> None:
    metadata = SqliteMetadata.in_memory()
    epochs = Epochs(metadata)
    numbering = epochs.numbering
    numbering.next()
    assert epochs.accept("dn-1", 40)
    assert numbering.next() == first_of_epoch(41) | 1
    assert held(metadata)
    assert not epochs.accept("dn-1", 41) and not epochs.accept("dn-2", 40)


def test_our_own_epoch_seen_by_one_that_we_have_not_accepted_was_somebody_else_s() -> None:
    metadata = SqliteMetadata.in_memory()
    epochs = Epochs(metadata)
    assert epochs.accept("dn-1", 1)
    assert epochs.numbering.epoch == 2 and held(metadata)


def test_a_datanode_that_comes_again_after_a_full_disk_still_shows_that_the_metadata_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has seen our own epoch, from another coordinator: accepted in passing, that would be no sign any more."""

    def refuse(**_missing: bool) -> None:
        raise MetadataFull

    metadata = SqliteMetadata.in_memory()
    epochs = Epochs(metadata)
    with monkeypatch.context() as full:
        full.setattr(metadata, "hold_floor", refuse)
        with pytest.raises(MetadataFull):
            epochs.accept("dn-1", 1)
    assert epochs.accept("dn-1", 1)
    assert epochs.numbering.epoch == 2 and held(metadata)


def test_commit_that_a_datanode_has_heard_of_and_we_lack_is_missed_until_that_is_accepted() -> None:
    metadata = SqliteMetadata.in_memory()
    metadata.begin_epoch()
    epochs, reader = Epochs(metadata), metadata.reader()
    found = metadata.tx_durable - 1
    assert not epochs.accept("hears-what-is-there", 1, found)
    assert not epochs.accept("knows-no-commits", 1) and not reader.lacks_commits()
    assert epochs.accept("heard-more", 1, found + 5)
    assert held(metadata) and reader.lacks_commits()
    assert epochs.numbering.epoch == 2, "no number of ours was drawn by anybody else"
    # It holds over restarts, and the floor with it, whoever comes first then.
    again = Epochs(metadata)
    metadata.hold_floor()
    assert reader.lacks_commits() and not again.accept("hears-what-is-there", 2, found)
    assert run_now(metadata, lambda tx: tx.accept_lost_commits())
    assert held(metadata) and not reader.lacks_commits()
    assert not Epochs(metadata).accept("heard-more", 3, found + 5)
    assert not run_now(metadata, lambda tx: tx.accept_lost_commits())


def test_commit_of_our_own_that_a_datanode_brings_back_is_not_missed() -> None:
    metadata = SqliteMetadata.in_memory()
    epochs = Epochs(metadata)
    assert not epochs.accept("dn-1", 0)
    run_now(metadata, lambda tx: tx.raise_floor(5))
    assert not epochs.accept("dn-1", 1, metadata.tx_durable)
    assert not metadata.reader().lacks_commits()


def test_numbers_are_settled_when_no_token_that_was_given_for_them_lives() -> None:
    epochs = Epochs(SqliteMetadata.in_memory(), settled_after_s=100.0)
    assert epochs.settled(0.0) is None
    first = epochs.numbering.next()
    assert epochs.settled(60.0) is None
    second = epochs.numbering.next()
    assert epochs.settled(100.0) == first_of_epoch(1)
    assert epochs.settled(159.0) is None
    assert epochs.settled(160.0) == first
    assert epochs.settled(200.0) == second
