"""A standby with a full disk or journal, or an empty journal: what it reports, and what it refuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar, cast

import pytest
from journal.replicated_store import Replica

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.failover.service import Failover, Follower
from peacefs.coordinator.journal.port import JournalFull, Member
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.model import ROOT, ChunkRecord, Inode, InodeKind
from peacefs.coordinator.metadata.store import Metadata, MetadataFull
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import StartupError

T = TypeVar("T")


def create(metadata: Metadata, chunk: int) -> None:
    """Make a file with one chunk."""

    def change(tx: Transaction) -> None:
        inode = tx.add_inode(Inode(0, InodeKind.FILE, 0o644, "ann", "staff", 1, 1, 10, 1 << 26, 3))
        tx.add_chunk(inode, 0, ChunkRecord(chunk, 1, 10, 3, ()), 0)
        tx.add_entry(ROOT, f"f{chunk}", inode)

    run_now(metadata, change)


def test_standby_without_room_tells_later_what_the_entries_before_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = Replica()
    replica.follow()
    for chunk in (11, 12, 13):
        create(replica.leader, chunk)
    log, before = replica.standby.log, replica.standby.journal_place().number
    append = log.append

    def append_one(number: int, content: bytes) -> int:
        log.fails = LogFull("no room")
        return append_now(number, content)

    def append_now(number: int, content: bytes) -> int:
        monkeypatch.setattr(log, "append", append)
        log.fails = None
        chain = append(number, content)
        log.fails = LogFull("no room")
        return chain

    monkeypatch.setattr(log, "append", append_one)
    with pytest.raises(MetadataFull):
        replica.standby.apply(replica.journal.read(before, 100))
    assert replica.standby.journal_place().number == before + 1, "the first entry stays"
    log.fails = None
    touched = replica.standby.apply(replica.journal.read(before + 1, 100))
    assert touched.chunks == {11, 12, 13}
    replica.check_equal()


def test_standby_that_could_not_begin_an_epoch_makes_no_changes_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = Replica()
    create(replica.leader, 11)
    replica.follow()
    standby = replica.standby
    writer = cast(JournalWriter, standby._journal)
    writer.take(1, 2)

    def full(_number: int, _content: bytes) -> NoReturn:
        raise JournalFull("no room")

    monkeypatch.setattr(writer, "append", full)
    with pytest.raises(MetadataFull):
        standby.begin_epoch()
    digests = (9).to_bytes(8, "big") + bytes(16)
    standby.image.execute("INSERT OR REPLACE INTO meta VALUES ('digests_at', ?)", (digests,))
    standby.tend(idle=True)
    assert not standby.rows.ops, "a leader publishes digests"


def test_standby_does_not_lead_from_a_journal_that_is_empty() -> None:
    replica = Replica()
    create(replica.leader, 11)
    replica.follow()
    replica.server.entries.clear()
    leadership = Leadership(time.monotonic, Member("b:1", "b:2"))
    follower = SimpleNamespace(is_warm=True, tick=lambda: None, changed=lambda touched: None)

    async def run(work: Callable[[], T]) -> T:
        return work()

    def replaced(why: str) -> NoReturn:
        raise AssertionError(why)

    failover = Failover(
        cast(JournalWriter, replica.standby._journal),
        replica.standby,
        leadership,
        cast(Follower, follower),
        run=run,
        sleep=asyncio.sleep,
        on_replaced=replaced,
    )

    async def keep() -> Any:
        async with asyncio.timeout(20):
            await failover.keep()

    with pytest.raises(StartupError, match="etcd was put back"):
        asyncio.run(keep())
    assert not leadership.leads
