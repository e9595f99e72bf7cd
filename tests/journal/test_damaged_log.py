"""A store with a journal and a damaged log reads the missing entries from the journal.

Without a journal such a store is refused, which `metadata/test_lost_commits.py` tests.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from journal.replicated_store import rows_of
from metadata.store_images import Image, entries, flip, image_of, log_of, put, with_log

from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import StartupError

_NAMES = 30


def make_directory(metadata: Metadata, path: str) -> None:
    assert run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


class KilledLeader:
    """A leader that was killed with all its commits in the log. The journal survives."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.server = JournalServer(time.monotonic)
        store = directory / "metadata.sqlite"
        writer = JournalWriter(JournalInMemory(self.server))
        metadata = open_store(store, owner="root", journal=writer)
        metadata.follow("one")
        writer.take(0, 1)
        metadata.begin_epoch()
        for number in range(_NAMES):
            self.before_the_last = image_of(store)
            make_directory(metadata, f"/{number:02}")
        self.image = image_of(store)
        self.rows = rows_of(metadata)
        metadata.close()
        ends = [end for _, end in entries(log_of(self.image))]
        # Without the segment's head and the padding after entries.
        self.bits = [bit for begin, end in entries(log_of(self.image)) for bit in range(8 * begin, 8 * (end - 7))]
        self.before_bytes, self.live_bytes = ends[-2], ends[-1] - 7

    def damaged(self, bit: int) -> Image:
        return with_log(self.image, flip(log_of(self.image), bit))

    def start(self, store: Path) -> tuple[Metadata, int]:
        """Start a coordinator on a store; return it when it is up to date, with the number of entries read."""
        journal = JournalInMemory(self.server)
        metadata = open_store(store, owner="root", journal=JournalWriter(journal))
        found = metadata.journal_place().number
        while following := journal.read(metadata.journal_place().number, 7):
            metadata.apply(following)
        return metadata, metadata.journal_place().number - found


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> KilledLeader:
    return KilledLeader(tmp_path_factory.mktemp("killed") / "store")


def assert_repaired(killed: KilledLeader, store: Path) -> int:
    metadata, repaired = killed.start(store)
    assert rows_of(metadata) == killed.rows
    metadata.close()
    assert check(store, lambda *_: None).problems == []
    return repaired


@pytest.mark.evidence("commits-lost")
def test_log_with_one_flipped_bit_is_repaired_from_the_journal(killed: KilledLeader, tmp_path: Path) -> None:
    randomly = random.Random(20261123)
    for bit in randomly.sample(killed.bits, 12):
        store = put(killed.damaged(bit), tmp_path / "store")
        assert assert_repaired(killed, store) > 0, bit


@pytest.mark.evidence("commits-lost")
def test_log_whose_last_commit_is_damaged_is_repaired_from_the_journal(
    killed: KilledLeader, tmp_path: Path
) -> None:
    randomly = random.Random(20261124)
    for bit in randomly.sample(range(8 * killed.before_bytes, 8 * killed.live_bytes), 8):
        store = put(killed.damaged(bit), tmp_path / "store")
        assert assert_repaired(killed, store) == 1, bit


@pytest.mark.evidence("commits-lost")
def test_log_that_was_cut_or_lost_is_repaired_from_the_journal(killed: KilledLeader, tmp_path: Path) -> None:
    randomly = random.Random(20261125)
    for length in (0, 10, *randomly.sample(range(killed.live_bytes), 8), killed.live_bytes - 1):
        store = put(with_log(killed.image, log_of(killed.image)[:length]), tmp_path / "store")
        assert assert_repaired(killed, store) > 0, length
    assert assert_repaired(killed, put(with_log(killed.image, None), tmp_path / "store")) > 0


def test_log_that_was_repaired_takes_the_next_epoch(tmp_path: Path) -> None:
    leader = KilledLeader(tmp_path / "another")
    store = put(leader.damaged(8 * (leader.live_bytes // 2)), tmp_path / "store")
    journal = JournalInMemory(leader.server)
    writer = JournalWriter(journal)
    metadata = open_store(store, owner="root", journal=writer)
    assert writer.take(1, 2)
    metadata.apply(journal.read(metadata.journal_place().number, 1000))
    assert metadata.begin_epoch() == 2
    make_directory(metadata, "/after")
    assert not metadata.reader().gc_floor_held(), "nothing is missing"
    metadata.close()


def test_log_that_was_damaged_is_refused_when_the_journal_is_left_out(
    killed: KilledLeader, tmp_path: Path
) -> None:
    store = put(killed.damaged(8 * (killed.live_bytes // 2)), tmp_path / "store")
    with pytest.raises(StartupError, match="has lost changes that were acknowledged"):
        open_store(store, owner="root")
    # An undamaged log is refused, too, because the journal may have more.
    with pytest.raises(StartupError, match="journal"):
        open_store(put(killed.image, tmp_path / "whole"), owner="root")
