"""Commits go to a journal first: what a standby has, and what a former leader can still do."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from journal.replicated_store import Replica, rows_of

from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer, Mishap
from peacefs.coordinator.journal.port import Entry, Fenced, JournalRefused
from peacefs.coordinator.journal.writer import JournalWriter, content_of
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.log.segments import LogFull, list_segments
from peacefs.coordinator.metadata.sqlite import row_digest
from peacefs.coordinator.metadata.sqlite.statements import STATEMENTS
from peacefs.coordinator.metadata.sqlite.store import open_store, store_in_memory
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import StartupError


def make_directory(metadata: Metadata, path: str) -> bool:
    return run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


def make_directories(metadata: Metadata, count: int) -> None:
    for number in range(count):
        make_directory(metadata, f"/{number}")


def names(metadata: Metadata) -> list[str]:
    page = namespace.list_page(metadata.reader(), parse_path("/"), None, 1000)
    return [entry.name for entry in page.entries]


def fate_of(fates: deque[Mishap], call: str) -> Mishap:
    """Return the next fate for an append; None for other calls."""
    return fates.popleft() if call == "append" and fates else Mishap.NONE


def test_standby_has_what_was_committed_and_nothing_of_what_was_refused() -> None:
    replica = Replica()

    def refused(tx: object) -> None:
        namespace.mkdirs(tx, parse_path("/refused"), "ann", 0o755, 1)
        raise ValueError

    outcomes = replica.leader.commit(
        [
            lambda tx: namespace.mkdirs(tx, parse_path("/one"), "ann", 0o755, 1),
            refused,
            lambda tx: namespace.mkdirs(tx, parse_path("/two"), "ann", 0o755, 1),
        ]
    )
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    replica.check_equal()
    assert names(replica.standby) == ["one", "two"]


def test_takeover_finds_all_that_was_acknowledged_and_the_old_leader_is_fenced() -> None:
    replica = Replica()
    make_directory(replica.leader, "/acknowledged")
    # Another coordinator takes the epoch; only then are the last entries read.
    successor = JournalWriter(JournalInMemory(replica.server))
    standby = store_in_memory(owner="root", journal=successor)
    assert successor.take(1, 2)
    with pytest.raises(MetadataFault, match="epoch 1 is over"):
        make_directory(replica.leader, "/too-late")
    standby.apply(replica.journal.read(0, 100))
    assert standby.begin_epoch() == 2
    make_directory(standby, "/after")
    assert names(standby) == ["acknowledged", "after"]
    with pytest.raises(MetadataFault):
        make_directory(replica.leader, "/later-still")


@pytest.mark.parametrize("mishap", [Mishap.LOST, Mishap.ANSWER_LOST])
def test_append_whose_answer_is_lost_is_repeated_until_it_is_known(mishap: Mishap) -> None:
    fates: deque[Mishap] = deque()
    replica = Replica(JournalInMemory(JournalServer(time.monotonic), partial(fate_of, fates)))
    fates.extend([mishap, mishap])
    make_directory(replica.leader, "/d")
    replica.check_equal()
    assert [entry.number for entry in replica.journal.read(0, 10)] == [1, 2]


def test_append_that_arrives_after_a_takeover_changes_nothing() -> None:
    late: list[Callable[[], None]] = []
    fates: deque[Mishap] = deque()
    server = JournalServer(time.monotonic)
    new = JournalInMemory(server)

    def take_over(seconds: float) -> None:
        assert new.take(1, 2)

    replica = Replica(JournalInMemory(server, partial(fate_of, fates), late.append), pause=take_over)
    fates.append(Mishap.LATE)
    with pytest.raises(MetadataFault, match="epoch 1 is over"):
        make_directory(replica.leader, "/late")
    (arrive,) = late
    arrive()
    assert [entry.number for entry in new.read(0, 10)] == [1]


def test_append_without_an_answer_for_long_ends_the_leader() -> None:
    now_s = 0.0

    def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += 1.0

    silent = False
    server = JournalServer(time.monotonic)
    journal = JournalInMemory(server, lambda call: Mishap.LOST if silent else Mishap.NONE)
    writer = JournalWriter(journal, clock=lambda: now_s, pause=pause)
    writer.take(0, 1)
    silent = True
    with pytest.raises(JournalRefused, match="not known"):
        writer.append(1, b"entry")


def test_full_journal_refuses_a_change_and_takes_the_next_when_there_is_room() -> None:
    replica = Replica()
    replica.server.entries_max = 1
    with pytest.raises(MetadataFull):
        make_directory(replica.leader, "/refused")
    replica.server.entries_max = None
    make_directory(replica.leader, "/taken")
    replica.check_equal()
    assert names(replica.standby) == ["taken"]


def test_journal_longer_than_its_bound_refuses_changes_until_it_is_trimmed() -> None:
    journal = JournalInMemory(JournalServer(time.monotonic))
    writer = JournalWriter(journal, bytes_max=400)
    metadata = store_in_memory(journal=writer)
    writer.take(0, 1)
    metadata.begin_epoch()
    with pytest.raises(MetadataFull, match="not all coordinators have read"):
        make_directories(metadata, 20)
    last = metadata.journal_place().number
    journal.trim(last)
    writer.measure()
    assert make_directory(metadata, "/again")


def test_entry_of_a_newer_peacefs_is_refused() -> None:
    replica = Replica()
    make_directory(replica.leader, "/d")
    entry, following = replica.journal.read(0, 2)
    content = msgspec.msgpack.decode(content_of(following))
    content[0] += 1
    data = following.data[:8] + msgspec.msgpack.encode(content)
    with pytest.raises(StartupError, match=r"upgrade this coordinator\. Standbys are upgraded before the leader"):
        replica.standby.apply([entry, Entry(2, data)])
    assert replica.standby.journal_place().number == 0, "all or none"
    # It is unchanged, and accepts what it knows.
    replica.check_equal()


@pytest.mark.evidence("standby-power-cut")
def test_store_that_lost_the_end_of_its_log_gets_it_from_the_journal(tmp_path: Path) -> None:
    """A power cut loses unsynced data, of which the commit record knows, and the journal has it."""
    server = JournalServer(time.monotonic)
    writer = JournalWriter(JournalInMemory(server))
    store = tmp_path / "a" / "metadata.sqlite"
    store.parent.mkdir()
    metadata = open_store(store, owner="root", journal=writer)
    writer.take(0, 1)
    metadata.begin_epoch()
    metadata.tend(idle=True)
    make_directory(metadata, "/in-the-log-alone")
    # Copy all files but the log.
    cut = tmp_path / "b" / "metadata.sqlite"
    cut.parent.mkdir()
    for ending in ("", ".commits"):
        (cut.parent / f"{cut.name}{ending}").write_bytes((store.parent / f"{store.name}{ending}").read_bytes())
    rows = rows_of(metadata)
    metadata.close()
    with pytest.raises(StartupError, match="was acknowledged"):
        open_store(cut, owner="root")
    repaired = open_store(cut, owner="root", journal=JournalWriter(JournalInMemory(server)))
    assert names(repaired) == []
    repaired.apply(JournalInMemory(server).read(repaired.journal_place().number, 100))
    assert rows_of(repaired) == rows
    repaired.close()


def test_entry_of_the_log_is_the_entry_of_the_journal() -> None:
    replica = Replica()
    make_directories(replica.leader, 3)
    replica.follow()
    contents = [content_of(entry) for entry in replica.journal.read(0, 10)]
    assert [each.content for each in replica.leader.log.entries] == contents
    assert [each.content for each in replica.standby.log.entries] == contents


@pytest.mark.evidence("standby-power-cut")
def test_entry_of_the_journal_is_synced_when_its_number_is_reported_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries up to this number are trimmed from the journal. Recorded system calls are the judge."""
    asked: list[Path] = []
    real, fails = os.fdatasync, False

    def sync(descriptor: int) -> None:
        asked.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        if fails:
            raise OSError(errno.EIO, "no")
        real(descriptor)

    store = tmp_path / "metadata.sqlite"
    writer = JournalWriter(JournalInMemory(JournalServer(time.monotonic)))
    metadata = open_store(store, owner="root", journal=writer)
    writer.take(0, 1)
    metadata.begin_epoch()
    make_directories(metadata, 1)
    monkeypatch.setattr(os, "fdatasync", sync)
    make_directory(metadata, "/unsynced")
    segment = list_segments(store)[-1][1]
    assert segment not in asked and metadata.entry_synced == 0
    metadata.sync_record()
    assert asked.count(segment) == 1 and metadata.entry_synced == 3
    make_directory(metadata, "/unsynced-either")
    fails = True
    with pytest.raises(MetadataFault):
        metadata.sync_record()
    assert asked.count(segment) == 2 and metadata.entry_synced == 3
    fails = False
    metadata.close()


@pytest.mark.evidence("standby-power-cut")
def test_entry_is_not_said_to_be_synced_before_it_is_and_a_power_cut_costs_nothing(tmp_path: Path) -> None:
    """No commit waits for a sync of the log, since the journal has the entry. Trimmed entries were synced."""
    server = JournalServer(time.monotonic)
    writer = JournalWriter(JournalInMemory(server))
    store = tmp_path / "a" / "metadata.sqlite"
    store.parent.mkdir()
    metadata = open_store(store, owner="root", journal=writer)
    writer.take(0, 1)
    metadata.begin_epoch()
    make_directories(metadata, 3)
    metadata.sync_record()
    assert metadata.entry_synced == metadata.journal_place().number == 4
    cut = tmp_path / "b"
    shutil.copytree(store.parent, cut)
    for number in range(3, 6):
        make_directory(metadata, f"/{number}")
    assert (metadata.entry_synced, metadata.journal_place().number) == (4, 7)
    rows = rows_of(metadata)
    metadata.close()
    repaired = open_store(cut / store.name, owner="root", journal=JournalWriter(JournalInMemory(server)))
    assert names(repaired) == ["0", "1", "2"] and repaired.entry_synced == 4
    repaired.apply(JournalInMemory(server).read(4, 100))
    assert rows_of(repaired) == rows and repaired.entry_synced == 4
    repaired.sync_record()
    assert repaired.entry_synced == 7
    repaired.close()


def test_epoch_that_is_moved_by_a_leader_is_the_journals_too() -> None:
    replica = Replica()
    assert replica.leader.begin_epoch(41) == 42
    assert replica.journal.epoch() == 42
    make_directory(replica.leader, "/d")
    replica.check_equal()


def test_takeover_of_the_same_epoch_is_refused() -> None:
    replica = Replica()
    other = JournalWriter(JournalInMemory(replica.server))
    assert not other.take(0, 1)
    with pytest.raises(Fenced):
        JournalInMemory(replica.server).append(1, 2, b"entry")


def _statement(beginning: str) -> int:
    """Return the number of the only statement with this beginning."""
    (number,) = (number for number, text in enumerate(STATEMENTS) if text.startswith(beginning))
    return number


def test_entries_of_the_release_before_are_applied_by_a_new_standby() -> None:
    """The statements create /d/f with one chunk, rename its directory, and set answer, quota and floor."""
    server = JournalServer(time.monotonic)
    writer = JournalWriter(JournalInMemory(server))
    successor = JournalWriter(JournalInMemory(server))
    standby = store_in_memory(owner="root", journal=successor)
    d, f, chunk = 1 << 40 | 1, 1 << 40 | 2, 1 << 40 | 7
    add_inode, add_entry = _statement("INSERT INTO inode VALUES"), _statement("INSERT INTO entry VALUES")
    set_meta = _statement("UPDATE meta SET value = ? WHERE key = ?")
    commits: list[list[tuple[int, list[object]]]] = [
        [(set_meta, [1, "epoch"]), (set_meta, [1, "last_tx"])],
        [
            (add_inode, [d, 2, 1, 0o755, "ann", "supergroup", 5, 0, 0, 0, 0, "", 0]),
            (add_entry, [1, "d", 2, d, None, None]),
            (_statement("UPDATE inode SET modified_ms"), [5, 1]),
            (add_inode, [f, 2, 0, 0o644, "ann", "supergroup", 5, 5, 10, 1 << 26, 2, "", 0]),
            (add_entry, [d, "f", 2, f, None, None]),
            (_statement("INSERT OR IGNORE INTO chunk"), [chunk, 1, 10, 7, 2, '["node-a"]']),
            (_statement("INSERT INTO reference"), [f, 0, 2, chunk, 10]),
            (_statement("INSERT INTO request"), ["r-1", b"yes", 5]),
            (set_meta, [2, "last_tx"]),
        ],
        [
            (_statement("DELETE FROM entry WHERE parent = ? AND name = ? AND to_tx = 9"), [1, "d"]),
            (add_entry, [1, "renamed", 3, d, "/d", 6]),
            (_statement("INSERT OR REPLACE INTO quota"), [d, 100, None, 2, 20]),
            (set_meta, [chunk, "floor"]),
            (set_meta, [3, "last_tx"]),
        ],
    ]
    writer.take(0, 1)
    for number, executed in enumerate(commits, start=1):
        writer.append(number, msgspec.msgpack.encode([17, len(STATEMENTS), number, 1, executed]))
    touched = standby.apply(JournalInMemory(server).read(0, 10))
    assert touched.chunks == {chunk} and {"inode", "entry", "quota", "request"} <= touched.tables
    reader = standby.reader()
    assert names(standby) == ["renamed"] and standby.journal_place().number == 3
    assert reader.follow(["renamed", "f"])[0] == [1, d, f]
    assert [(each.chunk, each.length) for each in reader.references(f)] == [(chunk, 10)]
    assert reader.answer("r-1") == b"yes" and reader.floor() == chunk and reader.last_tx() == 3
    assert reader.quota_directories() == {d}
    assert row_digest.difference(standby.imaged()) is None
    # It goes on as the leader. Its own entries follow, and its image has the earlier ones.
    assert successor.take(1, 2) and standby.begin_epoch() == 2
    make_directory(standby, "/renamed/after")
    assert [name for name, _ in reader.children(d, "", 10)] == ["after", "f"]


def test_standby_without_room_goes_on_where_it_stopped() -> None:
    replica = Replica()
    for path in ("/a", "/b"):
        make_directory(replica.leader, path)
    replica.standby.log.fails = LogFull("no room")
    before = rows_of(replica.standby)
    for _ in range(2):
        with pytest.raises(MetadataFull):
            replica.standby.apply(replica.journal.read(0, 10))
        assert replica.standby.journal_place().number == 0 and rows_of(replica.standby) == before
    replica.standby.log.fails = None
    replica.check_equal()
