"""A log that has lost its end: what was acknowledged is missed at the next start, what was not is not missed.

The images are what `kill -9` leaves: files of a store that is open, copied as they are.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.long_runs import often
from support.waiting import wait_until

from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.sqlite import commit_record, lost_commits
from peacefs.coordinator.metadata.sqlite import store as metadata_sqlite
from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.log_scan import checksum, find_lost_tail
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import first_of_epoch

from .conftest import Space
from .store_images import (
    FRAME_BYTES,
    FRAME_HEAD_BYTES,
    LOG_HEAD_BYTES,
    flip,
    frames,
    image_of,
    put,
    with_log,
)

_NAMES = 40


def names(store: Path) -> set[str]:
    metadata = open_store(store, owner="root")
    try:
        space = Space(metadata)
        return set(space.names("/")) - {".Trash"}
    finally:
        metadata.close()


class Killed:
    """A store killed with all its commits in the log, and how it was before the last of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        store = directory / "metadata.sqlite"
        metadata = open_store(store, owner="root")
        self.epoch = metadata.begin_epoch()
        space = Space(metadata)
        for number in range(_NAMES):
            self.before_the_last = image_of(store)
            space.create(f"/{number:02}", 10)
        self.image = image_of(store)
        metadata.close()
        self.live_bytes = frames(self.image["-wal"])[-1][0] + FRAME_BYTES
        self.before_bytes = frames(self.before_the_last["-wal"])[-1][0] + FRAME_BYTES


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed") / "store")


def assert_refused(store: Path) -> str:
    """A start says what is missing and what to do, and leaves all as it is; so does the next."""
    before = image_of(store)
    for _ in range(2):
        with pytest.raises(StartupError, match="has lost changes that were acknowledged") as refused:
            open_store(store, owner="root")
        assert image_of(store) == before
    message = refused.value.message
    assert "peacefs metadata restore" in message and f"accept-loss --dir {store.parent}" in message
    assert "\n" not in message
    return message


def test_commits_are_all_there_after_a_kill(killed: Killed, tmp_path: Path) -> None:
    store = put(killed.image, tmp_path / "store")
    assert names(store) == {f"{number:02}" for number in range(_NAMES)}


@pytest.mark.evidence("commits-lost")
def test_commits_lost_to_one_flipped_bit_are_missed(killed: Killed, tmp_path: Path) -> None:
    randomly = random.Random(20261122)
    for bit in randomly.sample(range(8 * killed.live_bytes), often(18, 36)):
        store = put(with_log(killed.image, flip(killed.image["-wal"], bit)), tmp_path / "store")
        assert "was acknowledged on 20" in assert_refused(store), bit


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_the_last_one_damaged_are_missed(killed: Killed, tmp_path: Path) -> None:
    """It looks like a commit that a power cut has cut short; the record knows that it was acknowledged."""
    randomly = random.Random(20261126)
    for bit in randomly.sample(range(8 * killed.before_bytes, 8 * killed.live_bytes), 12):
        store = put(with_log(killed.image, flip(killed.image["-wal"], bit)), tmp_path / "store")
        assert "was acknowledged on 20" in assert_refused(store), bit


@pytest.mark.evidence("commits-lost")
def test_commits_lost_to_a_log_that_was_cut_are_missed(killed: Killed, tmp_path: Path) -> None:
    randomly = random.Random(20261123)
    for length in (0, 10, *randomly.sample(range(killed.live_bytes), 22), killed.live_bytes - 1):
        assert_refused(put(with_log(killed.image, killed.image["-wal"][:length]), tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_the_whole_log_are_missed(killed: Killed, tmp_path: Path) -> None:
    without = {part: content for part, content in killed.image.items() if part != "-wal"}
    assert_refused(put(without, tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_an_older_store_put_back_by_hand_are_missed(killed: Killed, tmp_path: Path) -> None:
    older = {**killed.before_the_last, ".commits": killed.image[".commits"]}
    assert_refused(put(older, tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_of_a_power_cut_that_nobody_heard_of_are_not_missed(killed: Killed, tmp_path: Path) -> None:
    """The last commit was cut short: its record had not been written, and what was of it came in any order."""
    whole, randomly = killed.image["-wal"], random.Random(20261124)
    last = [at for at, _ in frames(whole) if at >= killed.before_bytes]
    assert len(last) > 2
    torn = [
        whole[:length] for length in randomly.sample(range(killed.before_bytes, killed.live_bytes), often(8, 24))
    ]
    for at in last:
        # A page of it did not reach the disk, and all others did; or only a part of the page.
        torn.append(whole[:at] + bytes(FRAME_BYTES) + whole[at + FRAME_BYTES :])
        torn.append(whole[: at + 1024] + bytes(512) + whole[at + 1536 :])
    for log in torn:
        store = put({**killed.image, "-wal": log, ".commits": killed.before_the_last[".commits"]}, tmp_path / "s")
        assert names(store) >= {f"{number:02}" for number in range(_NAMES - 1)}


def test_commits_that_the_record_does_not_name_yet_are_kept(killed: Killed, tmp_path: Path) -> None:
    """It is written after the commit, and a power cut may leave it older by a second."""
    store = put({**killed.image, ".commits": killed.before_the_last[".commits"]}, tmp_path / "store")
    assert len(names(store)) == _NAMES


@pytest.mark.evidence("commits-lost")
def test_commits_behind_a_damaged_frame_are_missed_without_a_record(killed: Killed, tmp_path: Path) -> None:
    """As an earlier version has left it: the log itself shows sound commits behind the damage."""
    randomly = random.Random(20261125)
    image = {part: content for part, content in killed.image.items() if part != ".commits"}
    for bit in randomly.sample(
        range(8 * LOG_HEAD_BYTES, 8 * killed.before_bytes - 8 * FRAME_BYTES), often(12, 24)
    ):
        store = put(with_log(image, flip(image["-wal"], bit)), tmp_path / "store")
        if find_lost_tail(store.with_name("metadata.sqlite-wal")) is None:
            # The mark of a commit itself was hit, and the next shows that no more; or the one before the last was.
            at = (bit // 8 - LOG_HEAD_BYTES) % FRAME_BYTES
            assert at < FRAME_HEAD_BYTES or bit // 8 > killed.before_bytes - 8 * FRAME_BYTES, bit
            continue
        assert "behind the damage" in assert_refused(store), bit


def test_log_of_a_whole_store_shows_no_damage(killed: Killed, tmp_path: Path) -> None:
    for image in (killed.image, killed.before_the_last):
        store = put(image, tmp_path / "store")
        assert find_lost_tail(store.with_name("metadata.sqlite-wal")) is None
    # Frames of the round before lie behind those of this one.
    metadata = open_store(put(killed.image, tmp_path / "store"), owner="root")
    metadata.begin_epoch()
    metadata.tend(idle=True)
    Space(metadata).create("/of-the-next-round", 10)
    log = image_of(tmp_path / "store" / "metadata.sqlite")["-wal"]
    assert len(frames(log)) * FRAME_BYTES < len(log) - 10 * FRAME_BYTES
    assert find_lost_tail(tmp_path / "store" / "metadata.sqlite-wal") is None
    metadata.close()


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("length", [8, 24, 4104])
def test_checksum_is_that_of_sqlite(order: str, length: int) -> None:
    data = random.Random(length).randbytes(length)
    first, second = 0xDEADBEEF, 12345
    for a, b in struct.iter_unpack("<II" if order == "little" else ">II", data):
        first = (first + a + second) & 0xFFFFFFFF
        second = (second + b + first) & 0xFFFFFFFF
    assert checksum(data, (0xDEADBEEF, 12345), order) == (first, second)


def test_record_with_one_damaged_slot_still_shows_the_loss(killed: Killed, tmp_path: Path) -> None:
    cut = with_log(killed.image, killed.image["-wal"][: killed.live_bytes // 2])
    for slot in (0, 1):
        store = put({**cut, ".commits": flip(cut[".commits"], 8 * (4096 * slot + 20))}, tmp_path / "store")
        assert_refused(store)


def test_record_that_is_damaged_leaves_nobody_sure(killed: Killed, tmp_path: Path) -> None:
    record = killed.image[".commits"]
    for damaged in (b"", record[:10], flip(flip(record, 100), 8 * 4096 + 100)):
        store = put({**killed.image, ".commits": damaged}, tmp_path / "store")
        assert "is damaged: nobody knows" in assert_refused(store)
    assert lost_commits.accept(store, random.Random(1)) is not None
    assert len(names(store)) == _NAMES


def test_record_of_another_cluster_says_nothing(killed: Killed, tmp_path: Path) -> None:
    other = Killed(tmp_path / "other")
    store = put({**killed.image, ".commits": other.image[".commits"]}, tmp_path / "store")
    assert len(names(store)) == _NAMES
    # It is this one's from then on.
    cut = {**killed.image, ".commits": image_of(store)[".commits"], "-wal": b""}
    assert_refused(put(cut, tmp_path / "store"))


def test_record_without_its_store_shows_that_the_metadata_was_lost(killed: Killed, tmp_path: Path) -> None:
    store = put({".commits": killed.image[".commits"]}, tmp_path / "store")
    with pytest.raises(StartupError, match="the metadata was lost"):
        open_store(store, owner="root")


def test_record_names_changes_of_the_epoch_and_the_floor_too(tmp_path: Path) -> None:
    store = tmp_path / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    for change in (metadata.begin_epoch, metadata.hold_gc_floor, metadata.begin_epoch):
        before = image_of(store)
        change()
        assert_refused(put({**before, ".commits": image_of(store)[".commits"]}, tmp_path / "older"))
    metadata.close()


@pytest.mark.evidence("commits-lost")
def test_loss_that_is_accepted_keeps_the_floor_and_repeats_no_number(killed: Killed, tmp_path: Path) -> None:
    damaged = flip(killed.image["-wal"], 8 * (killed.live_bytes // 2))
    store = put(with_log(killed.image, damaged), tmp_path / "store")
    accepted = lost_commits.accept(store, random.Random(1))
    assert accepted is not None and "was acknowledged" in accepted.loss
    assert accepted.log is not None and accepted.log.read_bytes() == damaged
    metadata = open_store(store, owner="root")
    space = Space(metadata)
    assert 0 < len(space.names("/")) < _NAMES
    assert space.reader.gc_floor_held() and not space.reader.lacks_commits()
    space.commit(lambda tx: tx.raise_gc_floor(10**18))
    assert space.reader.floor() == 0
    assert metadata.begin_epoch() > accepted.epoch > killed.epoch
    assert metadata.tx_durable > first_of_epoch(killed.epoch + 1)
    metadata.close()
    assert check(store, lambda *_: None).problems == []
    assert lost_commits.accept(store, random.Random(1)) is None


def test_loss_is_mended_by_a_backup_whose_numbers_are_above_those_that_were_lost(
    killed: Killed, tmp_path: Path
) -> None:
    whole = put(killed.before_the_last, tmp_path / "whole")
    back_up(whole, tmp_path / "backup", lambda *_: None)
    store = put(with_log(killed.image, b""), tmp_path / "store")
    made = restore(tmp_path / "backup", store, lambda *_: None, random.Random(1), replace=True)
    assert made.epoch > killed.epoch
    assert len(names(store)) == _NAMES - 1
    assert made.replaced is not None
    assert commit_record.path_of(made.replaced).exists()


def test_check_and_backup_say_that_commits_are_missing(killed: Killed, tmp_path: Path) -> None:
    store = put(with_log(killed.image, b""), tmp_path / "store")
    (problem,) = check(store, lambda *_: None).problems
    assert problem.name == "all that was acknowledged is there" and "was acknowledged on" in problem.examples[0]
    with pytest.raises(StartupError, match="has lost changes"):
        back_up(store, tmp_path / "backup", lambda *_: None)
    assert not (tmp_path / "backup").exists()


# -- how long the log alone holds commits ------------------------------------------------------------


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[Metadata]:
    (tmp_path / "live").mkdir()
    made = open_store(tmp_path / "live" / "metadata.sqlite", owner="root")
    made.begin_epoch()
    yield made
    made.close()


def mkdirs(commits: GroupCommit, path: str) -> None:
    commits.submit(lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1)).result(20.0)


def is_in_the_store_without_its_log(tmp_path: Path, name: str) -> bool:
    image = image_of(tmp_path / "live" / "metadata.sqlite")
    try:
        return name in names(put({"": image[""]}, tmp_path / "looked-at"))
    except StartupError:
        # The store was being written while it was read.
        return False


def test_log_of_an_idle_coordinator_is_copied_into_the_store(metadata: Metadata, tmp_path: Path) -> None:
    faults: list[MetadataFault] = []
    commits = GroupCommit(metadata, faults.append)
    try:
        for name in ("first", "second"):
            mkdirs(commits, f"/{name}")
            wait_until(lambda name=name: is_in_the_store_without_its_log(tmp_path, name), "the log is copied")  # type: ignore[misc]
    finally:
        commits.close()
    assert faults == []


def test_log_of_a_coordinator_that_never_pauses_is_copied_after_a_while(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for long enough that it would count as idle."""
    monkeypatch.setattr(metadata_sqlite, "metadata_log_age_max_s", 0.2)
    ticks = iter(range(10**6))
    commits = GroupCommit(metadata, pytest.fail)
    try:
        mkdirs(commits, "/first")

        def seen() -> bool:
            mkdirs(commits, f"/next-{next(ticks)}")
            return is_in_the_store_without_its_log(tmp_path, "first")

        wait_until(seen, "the log is copied")
    finally:
        commits.close()


def test_log_that_was_deleted_from_a_store_that_is_open_costs_no_commit_and_stops_it(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    store = tmp_path / "live" / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    for number in range(20):
        space.create(f"/{number:02}", 10)
    store.with_name("metadata.sqlite-wal").unlink()
    with pytest.raises(MetadataFault, match="moved, deleted or replaced"):
        metadata.tend(idle=True)
    with pytest.raises(MetadataFault):
        space.create("/late", 10)
    # As the process that stops at once leaves it.
    assert len(names(put(image_of(store), tmp_path / "left"))) == 20
    metadata.close()
