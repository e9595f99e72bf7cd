"""Group commit: shared, isolated, bounded, told when durable and not before; undone together, fatal on a fault.

What writes entries is a queue that the test works off (`Writing`), so that all may happen while one is written.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from journal.replicated_store import rows_of
from support.long_runs import often

from peacefs.coordinator.metadata.group_commit import GroupCommit, WriterThread, run_now
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, open_store, store_in_memory
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.durable_answers import DurableAnswers
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, Overloaded, ServiceUnready

Done = Callable[[BaseException | None], None]


def mkdirs(path: str) -> Callable[[Transaction], bool]:
    return lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1)


def names(metadata: Metadata, path: str = "/") -> list[str]:
    return [entry.name for entry in namespace.list_page(metadata.reader(), parse_path(path)).entries]


class Writing:
    """Entries that are being written, and callbacks of the loop, until `turn` lets them go on."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], None], Done]] = []
        self.soon: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.works.append((work, done))

    def close(self) -> None:
        """What waits is done by who closes."""

    def begin(self) -> None:
        """The loop has had its turn: an entry begins."""
        while self.soon:
            soon, self.soon = self.soon, []
            for call in soon:
                call()

    def write(self) -> Callable[[], None]:
        """Write the entry under way; return what tells the loop of it."""
        work, done = self.works.pop(0)
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        return lambda: done(error)

    def turn(self) -> None:
        """All that is under way comes to an end."""
        self.begin()
        while self.works:
            self.write()()
            self.begin()


class Told:
    """What those who wait were told, in order."""

    def __init__(self) -> None:
        self.outcomes: dict[str, ServiceUnready | None] = {}

    def __call__(self, name: str) -> Callable[[ServiceUnready | None], None]:
        def settled(outcome: ServiceUnready | None) -> None:
            assert name not in self.outcomes, "told twice"
            self.outcomes[name] = outcome

        return settled

    @property
    def well(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome is None]

    @property
    def unready(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome is not None]


class Group:
    """A group commit over a store in memory."""

    def __init__(self, **changes: Any) -> None:
        self.metadata: MetadataInMemory = store_in_memory(owner="root")
        self.metadata.begin_epoch()
        self.log = self.metadata.log
        # All of it stays, for `rows_of_log`.
        self.log.drop_before = lambda number, kept_bytes=0: None  # type: ignore[method-assign]
        self.writing, self.told = Writing(), Told()
        self.faults: list[MetadataFault] = []
        self.room: list[bool] = []
        self.commits = GroupCommit(
            self.metadata,
            self.faults.append,
            self.room.append,
            run=self.writing,
            soon=self.writing.soon.append,
            **changes,
        )
        # `soon` is replaced by `begin`.
        self.commits._soon = lambda call: self.writing.soon.append(call)

    def mkdirs(self, path: str, **how: Any) -> bool:
        return self.commits.submit(mkdirs(path), self.told(path), **how)

    def rows_of_log(self) -> dict[str, list[Any]]:
        """What a start would find: an image that the log alone has made."""
        image = store_in_memory(owner="root")
        replayed = MetadataInMemory(image.image, self.log)
        return rows_of(replayed)


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
        group.commits.submit(half, group.told("half"))
    with pytest.raises(ZeroDivisionError):
        group.commits.submit(wrong, group.told("wrong"))
    group.mkdirs("/good")
    group.writing.turn()
    assert group.told.well == ["/good"] and names(group.metadata) == ["good"]
    assert group.rows_of_log() == rows_of(group.metadata)


def test_a_name_that_is_taken_is_the_fault_of_its_request_alone(group: Group) -> None:
    group.mkdirs("/a")
    with pytest.raises(Exception, match="has an entry a already"):
        group.commits.submit(lambda tx: tx.add_entry(1, "a", 99), group.told("taken"))
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
        group.commits.submit(taken, group.told("taken"))
    assert group.commits.submit(lambda tx: tx.has_children(1), group.told("seen"))
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
    assert group.commits.submit(mkdirs("/a"), group.told("again"))
    assert group.told.outcomes == {}, "it may be told of /a when /a is durable"
    group.writing.turn()
    assert group.told.well == ["/a", "again"]
    entries = len(group.log.entries)
    assert group.commits.submit(mkdirs("/a"), group.told("once more"))
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
    # A background task has nobody who would ask again.
    group.mkdirs("/own", in_any_case=True)
    group.writing.turn()
    group.mkdirs("/3")
    group.writing.turn()
    assert names(group.metadata) == ["0", "1", "3", "own"]


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


# -- no room -----------------------------------------------------------------------------------------


@pytest.mark.evidence("coordinator-disk-full")
def test_on_a_full_disk_changes_are_undone_newest_first_until_there_is_room(group: Group) -> None:
    """What was done while the entry that is refused was being written saw it, and goes with it."""
    group.mkdirs("/before")
    group.writing.turn()
    before = rows_of(group.metadata)
    entries = group.metadata.rows.number
    group.log.fails = LogFull("no room")
    group.mkdirs("/refused")
    group.writing.begin()
    group.mkdirs("/refused/below")
    group.commits.submit(lambda tx: namespace.delete(tx, parse_path("/before"), True, 2), group.told("delete"))
    group.mkdirs("/more")
    assert names(group.metadata) == ["more", "refused"]
    group.writing.write()()
    assert group.told.unready == ["/refused", "/refused/below", "delete", "/more"]
    refusal = group.told.outcomes["/refused"]
    assert refusal is not None and refusal.retriable and "disk is full" in str(refusal)
    assert names(group.metadata) == ["before"] and rows_of(group.metadata) == before
    assert not any(group.metadata.rows.changed) and group.metadata.rows.number == entries
    assert group.room == [False]
    group.log.fails = None
    group.told.outcomes.clear()
    group.mkdirs("/after")
    group.writing.turn()
    assert group.told.well == ["/after"] and group.room == [False, True]
    assert group.commits.submit(lambda tx: tx.entry_count(1), group.told("count")) == 2
    assert group.faults == [] and group.rows_of_log() == rows_of(group.metadata)


def test_full_disk_is_met_by_who_commits_at_once_while_an_entry_waits_to_be_written(group: Group) -> None:
    """The entry that was undone meanwhile is not written when its turn comes, whatever room there is then."""
    group.mkdirs("/refused")
    group.writing.begin()
    group.log.fails = LogFull("no room")
    with pytest.raises(MetadataFull):
        run_now(group.metadata, mkdirs("/now"))
    assert group.told.unready == ["/refused"]
    group.log.fails = None
    group.mkdirs("/after")
    group.writing.turn()
    assert group.told.well == ["/after"] and group.faults == []
    assert names(group.metadata) == ["after"] and group.rows_of_log() == rows_of(group.metadata)


@pytest.mark.evidence("coordinator-disk-full")
@pytest.mark.parametrize("seed", range(often(15, 300)))
def test_on_a_full_disk_memory_is_what_the_log_says_whatever_was_under_way(seed: int) -> None:
    random, group = Random(seed), Group()
    done: set[str] = set()
    for number in range(40):
        group.log.fails = LogFull("no room") if random.random() < 0.3 else None
        for step in range(random.randrange(4)):
            directory = random.choice(["/a", "/b", f"/{number}"])
            name = f"{directory}/{step}"
            if random.random() < 0.3:
                group.commits.submit(
                    lambda tx, d=directory: namespace.delete(tx, parse_path(d), True, 2),  # type: ignore[misc]
                    lambda outcome: None,
                )
            else:
                group.commits.submit(
                    mkdirs(name), lambda outcome, n=name: done.add(n) if outcome is None else None
                )  # type: ignore[misc]
        random.choice([group.writing.begin, group.writing.turn])()
        if random.random() < 0.2:
            group.metadata.tend(idle=True)
    group.log.fails = None
    group.writing.turn()
    group.commits.close()
    assert group.faults == [] and done
    assert group.rows_of_log() == rows_of(group.metadata)
    for table, rows in enumerate(group.metadata.rows.changed):
        assert not rows, table


# -- a disk that fails ---------------------------------------------------------------------------------


@pytest.mark.evidence("coordinator-disk-fails", "answers-survive-kill")
@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), OSError(errno.EROFS, "no"), ValueError("ours")])
def test_a_disk_that_fails_is_fatal_and_nothing_is_acknowledged_afterwards(group: Group, error: Exception) -> None:
    group.mkdirs("/before")
    group.writing.turn()
    durable = group.rows_of_log()
    group.log.fails = error
    group.mkdirs("/during")
    group.writing.begin()
    group.mkdirs("/behind")
    group.writing.turn()
    assert group.told.well == ["/before"] and group.told.unready == ["/during", "/behind"]
    assert all("stopping" in str(outcome) for outcome in group.told.outcomes.values() if outcome)
    group.log.fails = None
    with pytest.raises(ServiceUnready):
        group.mkdirs("/after")
    with pytest.raises(MetadataFault):
        run_now(group.metadata, mkdirs("/after"))
    group.commits.close()
    group.metadata.close()
    assert len(group.faults) == 1
    assert group.rows_of_log() == durable, "a sync that succeeds after one that failed tells nothing"


def test_an_image_that_cannot_be_told_stops_the_coordinator_after_the_answer(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no process")

    monkeypatch.setattr(group.metadata.keeper, "durable", fail)
    group.mkdirs("/a")
    group.writing.turn()
    assert group.told.well == ["/a"] and len(group.faults) == 1


@pytest.mark.evidence("answers-survive-kill", "coordinator-disk-fails")
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_nothing_is_told_whichever_call_of_the_log_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """The n-th such call fails, for each n until none does: what was told is there at the next start."""
    for after in range(4):
        path = tmp_path / str(after) / "metadata.sqlite"
        path.parent.mkdir()
        metadata = open_store(path, owner="root")
        metadata.begin_epoch()
        metadata._log.close()  # type: ignore[attr-defined]
        metadata._log._at = metadata._log._size  # type: ignore[attr-defined]
        left = [after]

        def failing(*arguments: Any, true: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(code, os.strerror(code))
            return true(*arguments)

        told: list[str] = []
        with monkeypatch.context() as patched:
            of: Any = Path if call == "rename" else os
            true = getattr(of, call)
            patched.setattr(of, call, lambda *arguments, true=true: failing(*arguments, true=true))
            for name in "abc":
                try:
                    run_now(metadata, mkdirs(f"/{name}"))
                    told.append(name)
                except MetadataFull:
                    assert code in (errno.ENOSPC, errno.EDQUOT) and call != "fdatasync"
                    assert name not in names(metadata)
                except MetadataFault:
                    break
        copy = tmp_path / f"copy-{after}" / "metadata.sqlite"
        copy.parent.mkdir()
        for file in path.parent.iterdir():
            if not file.name.endswith((".lock", "-shm")):
                (copy.parent / file.name).write_bytes(file.read_bytes())
        metadata.close()
        started = open_store(copy, owner="root")
        # The one of which nothing is known may be there.
        assert names(started)[: len(told)] == told and len(names(started)) <= len(told) + 1
        started.close()


_FULL = """
import sys
from pathlib import Path
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.log import segments
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

segments.log_segment_bytes = 1 << 18
metadata = open_store(Path(sys.argv[1]) / "metadata.sqlite", owner="root")
metadata.begin_epoch()
done = refused = 0
for number in range(4000):
    try:
        path = parse_path(f"/{number:0200}")
        run_now(metadata, lambda tx: namespace.mkdirs(tx, path, "ann", 0o755, 1))
        done += 1
    except MetadataFull:
        refused += 1
        if refused == 3:
            break
names = metadata.reader().names_after(1, "", 10000)
print(done, refused, len(names))
metadata.close()
"""


@pytest.mark.evidence("coordinator-disk-full")
def test_a_real_disk_that_is_full_refuses_and_keeps_what_it_told(tmp_path: Path) -> None:
    """A small file system in memory, in a mount namespace of its own; skipped where that is not allowed."""
    script = tmp_path / "full.py"
    script.write_text(_FULL)
    disk = tmp_path / "disk"
    disk.mkdir()
    kept = tmp_path / "kept"
    run = (
        f"mount -t tmpfs -o size=3m none {disk} && {sys.executable} {script} {disk}; "
        f"mkdir {kept} && cp {disk}/metadata.sqlite* {kept}"
    )
    made = subprocess.run(["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, timeout=120)
    if "unshare" in made.stderr or "mount:" in made.stderr:
        pytest.skip("no mount namespaces here")
    done, refused, seen = map(int, made.stdout.split())
    assert refused == 3 and done == seen and 100 < done < 4000
    metadata = open_store(kept / "metadata.sqlite", owner="root")
    assert len(metadata.reader().names_after(1, "", 10_000)) == done
    metadata.close()


# -- answers that wait -----------------------------------------------------------------------------------


def test_answers_wait_for_what_another_request_has_changed(group: Group) -> None:
    """A request that only looks is told nothing that a crash could take back."""

    async def until_durable(number: int) -> None:
        heard = asyncio.get_running_loop().create_future()
        group.commits.wait_for(number, lambda outcome: heard.set_result(outcome))
        if refusal := await heard:
            raise refusal

    async def look() -> list[str]:
        return names(group.metadata)

    async def main() -> None:
        answers = DurableAnswers(group.metadata.rows, until_durable)
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


def test_writer_thread_writes_in_order_and_tells_on_the_loop(tmp_path: Path) -> None:
    async def main() -> list[str]:
        metadata = open_store(tmp_path / "metadata.sqlite", owner="root")
        metadata.begin_epoch()
        loop, main_thread = asyncio.get_running_loop(), threading.get_ident()
        commits = GroupCommit(
            metadata, pytest.fail, run=WriterThread(loop.call_soon_threadsafe), soon=loop.call_soon
        )
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
            commits.submit(mkdirs(f"/{number:02}"), settled(f"{number:02}"))
            await asyncio.sleep(0)
        await asyncio.wait_for(all_told.wait(), 60)
        commits.close()
        assert commits.commits <= 60 and names(metadata) == told
        metadata.close()
        return told

    assert asyncio.run(main()) == [f"{number:02}" for number in range(60)]
