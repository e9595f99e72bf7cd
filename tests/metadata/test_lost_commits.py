"""A log that lost its end: a start detects missing acknowledged commits, and only those.

The images are copies of the files of an open store, as `kill -9` leaves them.
"""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import pytest
from support.long_runs import often
from support.waiting import wait_until
from xxhash import xxh3_64_intdigest

from peacefs.coordinator.metadata.log.entry import unpack_alone
from peacefs.coordinator.metadata.sqlite import commit_record, lost_commits
from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.log_scan import checksum
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import first_of_epoch

from .conftest import Space
from .store_images import SEGMENT_HEAD_BYTES, entries, flip, image_of, log_of, put, segments, with_log

_NAMES = 40


def names(store: Path) -> set[str]:
    metadata = open_store(store, owner="root")
    try:
        space = Space(metadata)
        return set(space.names("/")) - {".Trash"}
    finally:
        metadata.close()


class Killed:
    """A store that was killed with all commits in the log, and its state before the last one."""

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
        self.log = log_of(self.image)
        self.entries = entries(self.log)
        self.live_bytes = self.entries[-1][1]
        self.before_bytes = self.entries[-2][1]
        #: All bits except the padding after entries.
        self.bits = [
            bit
            for begin, end in [(0, SEGMENT_HEAD_BYTES - 1), *self.entries]
            for bit in range(8 * begin, 8 * (end - 7))
        ]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed") / "store")


def assert_refused(store: Path) -> str:
    """Check that a start reports what is missing, and changes nothing; so does the next."""
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
    for bit in randomly.sample(killed.bits, often(18, 36)):
        store = put(with_log(killed.image, flip(killed.log, bit)), tmp_path / "store")
        assert_refused(store)


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_the_last_one_damaged_are_missed(killed: Killed, tmp_path: Path) -> None:
    """It looks like a commit cut short by a power cut, but the record shows that it was acknowledged."""
    randomly = random.Random(20261126)
    for bit in randomly.sample(range(8 * killed.before_bytes, 8 * (killed.live_bytes - 7)), 12):
        store = put(with_log(killed.image, flip(killed.log, bit)), tmp_path / "store")
        assert "was acknowledged on 20" in assert_refused(store), bit


@pytest.mark.evidence("commits-lost")
def test_commits_lost_to_a_log_that_was_cut_are_missed(killed: Killed, tmp_path: Path) -> None:
    randomly = random.Random(20261123)
    for length in (0, 10, *randomly.sample(range(killed.live_bytes), 12), killed.live_bytes - 8):
        assert_refused(put(with_log(killed.image, killed.log[:length]), tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_commits_lost_with_a_page_of_zeroes_are_missed(killed: Killed, tmp_path: Path, which: str) -> None:
    at = {
        "first": 0,
        "middle": killed.live_bytes // 2 // 4096 * 4096,
        "last": killed.entries[-1][0] // 4096 * 4096,
    }[which]
    store = put(
        with_log(killed.image, killed.log[:at] + bytes(4096) + killed.log[at + 4096 :]), tmp_path / "store"
    )
    assert_refused(store)


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_the_whole_log_are_missed(killed: Killed, tmp_path: Path) -> None:
    assert_refused(put(with_log(killed.image, None), tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_an_older_store_put_back_by_hand_are_missed(killed: Killed, tmp_path: Path) -> None:
    older = {**killed.before_the_last, ".commits": killed.image[".commits"]}
    assert_refused(put(older, tmp_path / "store"))


class Long:
    """A killed store whose commits are in several segments and not in the image."""

    def __init__(self, directory: Path, names: str) -> None:
        directory.mkdir()
        store = directory / "metadata.sqlite"
        metadata = open_store(store, owner="root")
        metadata.begin_epoch()
        space = Space(metadata)
        for name in names:
            space.mkdirs(f"/{name * 40}")
        self.image = image_of(store)
        self.cluster_id = metadata.cluster_id
        metadata.close()


@pytest.mark.evidence("commits-lost")
def test_commits_lost_with_a_segment_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata.log.segments.log_segment_bytes", 700)
    long = Long(tmp_path / "long", "abcdefghijkl")
    parts = segments(long.image)
    assert len(parts) > 2
    assert len(names(put(long.image, tmp_path / "store"))) == 12
    for missing in parts:
        image = {part: content for part, content in long.image.items() if part != missing}
        assert_refused(put(image, tmp_path / "store"))
    for one, other in itertools.combinations(parts, 2):
        image = {**long.image, one: long.image[other], other: long.image[one]}
        assert_refused(put(image, tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_of_another_past_are_not_taken_for_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores continue from one copy. A segment of one is put among the segments of the other."""
    monkeypatch.setattr("peacefs.coordinator.metadata.log.segments.log_segment_bytes", 700)
    first = Long(tmp_path / "first", "")
    ways = []
    for way in ("abcdefgh", "pqrstuvw"):
        store = put(first.image, tmp_path / way)
        metadata = open_store(store, owner="root")
        metadata.begin_epoch()
        space = Space(metadata)
        for name in way:
            space.mkdirs(f"/{name * 40}")
        ways.append(image_of(store))
        metadata.close()
    for part in segments(ways[0])[2:]:
        assert part in ways[1]
        assert_refused(put({**ways[0], part: ways[1][part]}, tmp_path / "store"))


@pytest.mark.evidence("commits-lost")
def test_commits_of_a_power_cut_that_nobody_heard_of_are_not_missed(killed: Killed, tmp_path: Path) -> None:
    """The last commit was cut short, before its record was written; its parts reached the disk in any order."""
    begin, end = killed.entries[-1]
    randomly = random.Random(20261124)
    torn = [
        killed.log[:length].ljust(len(killed.log), bytes(1))
        for length in (begin, begin + 8, *randomly.sample(range(begin, end - 8), often(8, 24)))
    ]
    torn += [killed.log[:at] + bytes(16) + killed.log[at + 16 :] for at in range(begin, end - 16, 48)]
    for log in torn:
        store = put(
            {**with_log(killed.image, log), ".commits": killed.before_the_last[".commits"]}, tmp_path / "s"
        )
        assert names(store) >= {f"{number:02}" for number in range(_NAMES - 1)}
        # The same with the next segment.
        assert names(store) >= {f"{number:02}" for number in range(_NAMES - 1)}


def test_commits_go_on_behind_one_that_was_torn(killed: Killed, tmp_path: Path) -> None:
    begin, _ = killed.entries[-1]
    log = killed.log[: begin + 40].ljust(len(killed.log), bytes(1))
    store = put({**with_log(killed.image, log), ".commits": killed.before_the_last[".commits"]}, tmp_path / "s")
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    Space(metadata).create("/behind", 10)
    image = image_of(store)
    metadata.close()
    assert names(put(image, tmp_path / "again")) == {f"{number:02}" for number in range(_NAMES - 1)} | {"behind"}


def test_commits_that_the_record_does_not_name_yet_are_kept(killed: Killed, tmp_path: Path) -> None:
    """The record is written after the commit; after a power cut it may be a second older."""
    store = put({**killed.image, ".commits": killed.before_the_last[".commits"]}, tmp_path / "store")
    assert len(names(store)) == _NAMES


@pytest.mark.evidence("commits-lost")
def test_commits_behind_a_damaged_entry_are_missed_without_a_record(killed: Killed, tmp_path: Path) -> None:
    """Sound entries after the damage prove the loss."""
    randomly = random.Random(20261125)
    image = {part: content for part, content in killed.image.items() if part != ".commits"}
    before_the_last = [bit for bit in killed.bits if bit < 8 * killed.before_bytes]
    for bit in randomly.sample(before_the_last, often(12, 24)):
        store = put(with_log(image, flip(killed.log, bit)), tmp_path / "store")
        assert "its log is damaged" in assert_refused(store), bit


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
    cut = with_log(killed.image, killed.log[: killed.live_bytes // 2])
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
    # From then on it belongs to this store.
    cut = with_log({**killed.image, ".commits": image_of(store)[".commits"]}, None)
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
    damaged = flip(killed.log, 8 * (killed.live_bytes // 2))
    store = put(with_log(killed.image, damaged), tmp_path / "store")
    accepted = lost_commits.accept(store, random.Random(1))
    assert accepted is not None and "shows that it was acknowledged" in accepted.loss
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
    store = put(with_log(killed.image, None), tmp_path / "store")
    made = restore(tmp_path / "backup", store, lambda *_: None, random.Random(1), replace=True)
    assert made.epoch > killed.epoch
    assert len(names(store)) == _NAMES - 1
    assert made.replaced is not None
    assert commit_record.path_of(made.replaced).exists()


def test_check_and_backup_say_that_commits_are_missing(killed: Killed, tmp_path: Path) -> None:
    store = put(with_log(killed.image, None), tmp_path / "store")
    (problem,) = check(store, lambda *_: None).problems
    assert problem.name == "all that was acknowledged is there" and "was acknowledged on" in problem.examples[0]
    with pytest.raises(StartupError, match="has lost changes"):
        back_up(store, tmp_path / "backup", lambda *_: None)
    assert not (tmp_path / "backup").exists()


# -- how long commits are only in the log ------------------------------------------------------------


def test_log_of_an_idle_coordinator_is_brought_to_the_image_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata.log.segments.log_segment_bytes", 3000)
    monkeypatch.setattr("peacefs.coordinator.metadata.store.log_kept_bytes", 0)
    monkeypatch.setattr("peacefs.coordinator.metadata.sqlite.file_image.image_entries_behind_max", 5)
    (tmp_path / "live").mkdir()
    store = tmp_path / "live" / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space.__new__(Space)
    space.metadata, space.now_ms = metadata, 0  # type: ignore[assignment]
    for number in range(40):
        space.mkdirs(f"/{number:02}")
    assert len(segments(image_of(store))) > 2

    def is_dropped() -> bool:
        metadata.tend(idle=True)
        return len(segments(image_of(store))) == 1

    wait_until(is_dropped, "the image has all")
    assert not any(metadata.rows.changed) and metadata.rows.changes_waiting == 0
    without = {part: content for part, content in image_of(store).items() if not part.startswith(".log-")}
    assert len(names(put(without, tmp_path / "image-alone"))) == 40
    metadata.close()


@pytest.mark.parametrize("put_back", [False, True], ids=["deleted", "replaced by a copy"])
def test_log_that_was_deleted_from_a_store_that_is_open_stops_it_before_the_next_answer(
    tmp_path: Path, put_back: bool
) -> None:
    for is_idle in (False, True):
        directory = tmp_path / str(is_idle)
        directory.mkdir()
        store = directory / "metadata.sqlite"
        metadata = open_store(store, owner="root")
        metadata.begin_epoch()
        space = Space(metadata)
        space.create("/before", 10)
        (part,) = segments(image_of(store))
        segment = store.with_name(store.name + part)
        content = segment.read_bytes()
        segment.unlink()
        if put_back:
            segment.write_bytes(content)
        if is_idle:
            with pytest.raises(MetadataFault, match="moved, deleted or replaced"):
                metadata.tend(idle=True)
        with pytest.raises(MetadataFault):
            space.create("/late", 10)
        metadata.close()


# -- users' data is no proof of a loss ---------------------------------------------------------------


def _forged_entry() -> bytes:
    """Return the bytes of an entry with a high number, made without the store's secret."""
    content, number = b"anything at all!", 1 << 20
    own = xxh3_64_intdigest(content, number)
    return struct.pack(">4sIQQQ", b"pfL1", len(content), number, own, 0) + content


@pytest.mark.evidence("half-written-files")
def test_entry_that_a_power_cut_tore_is_no_loss_whatever_users_wrote_into_it(tmp_path: Path) -> None:
    assert unpack_alone(memoryview(_forged_entry()), 0, 0) is not None, "it lacks nothing but the secret"
    (tmp_path / "live").mkdir()
    store = tmp_path / "live" / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    space.create("/kept", 10)
    acknowledged = image_of(store)
    # Entries begin at multiples of eight, so make a copy for each possible alignment.
    forged = b"".join(_forged_entry() + bytes(7 + place) for place in range(16))
    inode = space.status("/kept").inode
    space.commit(lambda tx: tx.set_attribute(inode, "user.forged", forged))
    image = image_of(store)
    metadata.close()
    log = log_of(image)
    begin, end = entries(log)[-1]
    assert any(log[at : at + 4] == b"pfL1" for at in range(begin + 8, end, 8)), (
        "one of them is where entries begin"
    )
    torn = log[: end - 16] + bytes(len(log) - end + 16)
    assert names(put({**with_log(image, torn), ".commits": acknowledged[".commits"]}, tmp_path / "store")) == {
        "kept"
    }
