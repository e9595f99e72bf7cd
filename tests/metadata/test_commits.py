"""Group commit: changes share entries, fail alone, and are answered when they are durable.

Here a queue writes the entries (`Writing`). A test runs its steps, so that anything can happen during a write.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from journal.replicated_store import rows_of

from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.metadata.writer import DiskSpeed, Writer
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, Overloaded, ServiceUnready

from .group_commits import Group, mkdirs, names


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.evidence("answers-survive-kill")
def test_an_answer_comes_when_the_change_is_durable_and_not_before(group: Group) -> None:
    before = len(group.log.entries)
    assert group.mkdirs("/a") is True
    assert names(group.metadata) == ["a"], "the next request sees it at once"
    assert group.told.outcomes == {}
    group.writing.begin()
    tell = group.writing.write()
    assert len(group.log.entries) == before + 1 and group.told.outcomes == {}
    tell()
    assert group.told.well == ["/a"]


def test_a_request_that_fails_leaves_no_trace_and_gets_its_error(group: Group) -> None:
    def half(tx: Transaction) -> None:
        mkdirs("/half")(tx)
        raise FileNotFound("the other half")

    def wrong(tx: Transaction) -> None:
        mkdirs("/wrong")(tx)
        raise ZeroDivisionError

    with pytest.raises(FileNotFound, match="the other half"):
        group.submit(half, "half")
    with pytest.raises(ZeroDivisionError):
        group.submit(wrong, "wrong")
    group.mkdirs("/good")
    group.writing.turn()
    assert group.told.well == ["/good"] and names(group.metadata) == ["good"]
    assert group.rows_of_log() == rows_of(group.metadata)


def test_a_name_that_is_taken_is_the_fault_of_its_request_alone(group: Group) -> None:
    group.mkdirs("/a")
    with pytest.raises(Exception, match="has an entry a already"):
        group.submit(lambda tx: tx.add_entry(1, "a", 99), "taken")
    group.mkdirs("/b")
    group.writing.turn()
    assert group.told.well == ["/a", "/b"] and group.faults == []


def test_requests_that_wait_share_an_entry_and_are_isolated_in_it(group: Group) -> None:
    group.mkdirs("/first")
    group.writing.begin()

    def taken(tx: Transaction) -> None:
        mkdirs("/a/undone")(tx)
        raise FileAlreadyExists("taken")

    group.mkdirs("/a")
    with pytest.raises(FileAlreadyExists):
        group.submit(taken, "taken")
    assert group.submit(lambda tx: tx.has_children(1), "seen")
    for number in range(20):
        group.mkdirs(f"/a/{number}")
    assert group.told.outcomes == {} and len(group.writing.works) == 1
    group.writing.turn()
    assert len(names(group.metadata, "/a")) == 20 and len(group.told.well) == 23
    assert (group.commits.commits, group.commits.requests) == (2, 23)


def test_answers_of_one_entry_come_in_the_order_in_which_they_were_asked_for(group: Group) -> None:
    paths = [f"/{number}" for number in range(10)]
    for path in paths:
        group.mkdirs(path)
    group.writing.turn()
    assert group.told.well == paths


def test_a_request_that_changes_nothing_costs_no_sync_and_waits_for_what_it_saw(group: Group) -> None:
    group.mkdirs("/a")
    assert group.submit(mkdirs("/a"), "again")
    assert group.told.outcomes == {}, "it may be told of /a when /a is durable"
    group.writing.turn()
    assert group.told.well == ["/a", "again"]
    entries = len(group.log.entries)
    assert group.submit(mkdirs("/a"), "once more")
    assert group.told.well[-1] == "once more", "at once"
    group.writing.turn()
    assert len(group.log.entries) == entries and group.commits.commits == 1


@pytest.mark.evidence("everything-is-bounded")
def test_too_many_waiting_are_turned_away_at_once() -> None:
    group = Group(queue_max=2)
    group.mkdirs("/0")
    group.mkdirs("/1")
    with pytest.raises(Overloaded):
        group.mkdirs("/2")
    # Nobody would retry a background task's commit.
    group.mkdirs("/own", in_any_case=True)
    group.writing.turn()
    group.mkdirs("/3")
    group.writing.turn()
    assert names(group.metadata) == ["0", "1", "3", "own"]


@pytest.mark.evidence("everything-is-bounded")
def test_too_many_rows_that_the_image_lacks_turn_changes_away_until_it_has_them(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata.group_commit.rows_waiting_max", 12)
    made = []
    while group.commits.behind < 12:
        made.append(f"{len(made)}")
        group.mkdirs(f"/{made[-1]}")
        group.writing.turn()
    with pytest.raises(Overloaded, match="try again"):
        group.mkdirs("/refused")
    assert names(group.metadata) == made
    group.metadata.catch_up()
    assert group.mkdirs("/accepted")


def test_it_is_told_how_long_each_entry_took() -> None:
    told: list[float] = []
    ticks = iter(range(100))
    group = Group(clock=lambda: float(next(ticks)), on_taken=told.append)
    for path in ("/a", "/b"):
        group.mkdirs(path)
        group.writing.turn()
    assert told == [1.0, 1.0]


def test_closing_makes_durable_what_waits_and_takes_nothing_more(group: Group) -> None:
    group.mkdirs("/0")
    group.writing.begin()
    group.mkdirs("/1")
    group.commits.close()
    assert group.told.well == ["/0", "/1"]
    with pytest.raises(ServiceUnready):
        group.mkdirs("/late")
    assert group.rows_of_log() == rows_of(group.metadata)


def test_closing_on_a_disk_that_fails_tells_all_that_wait(group: Group) -> None:
    group.mkdirs("/0")
    group.log.fails = OSError(errno.EIO, "no")
    group.commits.close()
    assert group.told.unready == ["/0"] and len(group.faults) == 1


# -- answers that wait -----------------------------------------------------------------------------------


def test_answers_wait_for_what_another_request_has_changed(group: Group) -> None:
    """A request that only reads gets no answer that a crash could undo."""

    async def look() -> list[str]:
        return names(group.metadata)

    async def main() -> None:
        answers = DurableAnswers(group.metadata.rows, Commits(group.commits))
        for fails in (None, LogFull("no room")):
            group.log.fails = fails
            path = "/full" if fails else "/a"
            group.mkdirs(path)
            watched = answers.watched()
            assert path[1:] in await watched.run(look())
            settled = asyncio.ensure_future(answers.settle(watched))
            await asyncio.sleep(0)
            assert not settled.done()
            group.writing.turn()
            if fails:
                with pytest.raises(ServiceUnready):
                    await settled
            else:
                await settled
        watched = answers.watched()
        assert await watched.run(look()) == ["a"]
        assert watched.needed == 0, "all of that is durable"

    asyncio.run(main())


def test_writer_writes_in_order_and_tells_on_the_loop(tmp_path: Path) -> None:
    async def main() -> list[str]:
        metadata = open_store(tmp_path / "metadata.sqlite", owner="root")
        metadata.begin_epoch()
        loop, main_thread = asyncio.get_running_loop(), threading.get_ident()
        commits = GroupCommit(metadata, pytest.fail, run=Writer(loop.call_soon_threadsafe), soon=loop.call_soon)
        told: list[str] = []
        all_told = asyncio.Event()

        def settled(path: str) -> Callable[[ServiceUnready | None], None]:
            def tell(outcome: ServiceUnready | None) -> None:
                assert outcome is None and threading.get_ident() == main_thread
                told.append(path)
                if len(told) == 60:
                    all_told.set()

            return tell

        for number in range(60):
            commits.submit(mkdirs(f"/{number:02}"))
            commits.wait_for(commits.last, settled(f"{number:02}"))
            await asyncio.sleep(0)
        await asyncio.wait_for(all_told.wait(), 60)
        commits.close()
        assert commits.commits <= 60 and names(metadata) == told
        metadata.close()
        return told

    assert asyncio.run(main()) == [f"{number:02}" for number in range(60)]


@pytest.mark.parametrize(
    ("writes_s", "is_quick"),
    [
        ([0.0001] * 31, False),
        ([0.0001] * 32, True),
        # Other threads make some measurements longer than the disk's time.
        ([0.0001, 0.004, 0.006, 0.009] * 8, True),
        ([0.002] * 100, False),
        # On the loop, the mean counts.
        ([0.0001] * 32 + [0.03], False),
        ([0.0001] * 64 + [0.01], True),
        ([0.0001] * 64 + [0.06] + [0.0001] * 31, False),
        ([0.0001] * 64 + [0.06] + [0.0001] * 32, True),
    ],
)
def test_disk_is_quick_if_waiting_for_it_takes_less_than_a_millisecond(
    writes_s: list[float], is_quick: bool
) -> None:
    speed = DiskSpeed()
    for seconds in writes_s:
        speed.wrote(seconds)
    assert speed.is_quick is is_quick


@pytest.mark.evidence("coordinator-disk-stalls")
def test_writer_leaves_the_loop_when_the_disk_becomes_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop, loops_thread = asyncio.get_running_loop(), threading.get_ident()
        clock = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
        writer = Writer(loop.call_soon_threadsafe)

        async def write(seconds: float) -> bool:
            """Write once. Return whether it ran on the loop."""
            threads: list[int] = []
            heard: asyncio.Future[BaseException | None] = loop.create_future()

            def work() -> None:
                clock[0] += seconds
                threads.append(threading.get_ident())

            writer(work, heard.set_result)
            assert await heard is None
            return threads == [loops_thread]

        assert [await write(0.0001) for _ in range(34)] == [False] * 32 + [True] * 2
        assert [await write(0.2), await write(0.0001)] == [True, False]
        failing: asyncio.Future[BaseException | None] = loop.create_future()
        writer(lambda: 1 // 0, failing.set_result)  # type: ignore[arg-type, return-value]
        assert isinstance(await failing, ZeroDivisionError)
        writer.close()

    asyncio.run(main())
