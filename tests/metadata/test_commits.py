"""Group commit: shared, isolated, bounded, and fatal when the disk fails. Its twin keeps the same promises."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import apsw
import pytest
from support.immediate_commit import Commits, ImmediateCommit

from peacefs.coordinator.metadata.group_commit import (
    CommitBounds,
    CommitDelay,
    GroupCommit,
    commit_batch_max,
    commit_delay_s_max,
    run_now,
)
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, Overloaded, ServiceUnready

PATIENCE_S = 120.0


def mkdirs(path: str) -> Callable[[Transaction], bool]:
    return lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1)


def names(metadata: Metadata, path: str = "/") -> list[str]:
    return [entry.name for entry in namespace.list_page(metadata.reader(), parse_path(path)).entries]


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[Metadata]:
    made = open_store(tmp_path / "metadata.sqlite", owner="root")
    made.begin_epoch()
    yield made
    made.close()


@pytest.fixture
def faults() -> list[MetadataFault]:
    return []


class MakeGroup(Protocol):
    def __call__(
        self, batch_max: int = ..., queue_max: int = ..., deliver: Callable[[Callable[[], None]], object] = ...
    ) -> GroupCommit: ...


@pytest.fixture
def group(metadata: Metadata, faults: list[MetadataFault]) -> Iterator[MakeGroup]:
    made: list[GroupCommit] = []

    def make(
        batch_max: int = 100,
        queue_max: int = 100,
        deliver: Callable[[Callable[[], None]], object] = lambda settle: settle(),
    ) -> GroupCommit:
        made.append(
            GroupCommit(metadata, faults.append, bounds=CommitBounds(batch_max, queue_max), deliver=deliver)
        )
        return made[-1]

    yield make
    for commits in made:
        commits.close()


@pytest.fixture(params=["group", "immediate"])
def commits(
    request: pytest.FixtureRequest, metadata: Metadata, faults: list[MetadataFault], group: MakeGroup
) -> Commits:
    return group() if request.param == "group" else ImmediateCommit(metadata, faults.append)


class Gate:
    """A request that holds the writer thread until it is opened."""

    def __init__(self, commits: GroupCommit) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()
        self.passed = commits.submit(self._pass)
        assert self._reached.wait(PATIENCE_S)

    def _pass(self, tx: Transaction) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE_S)

    def open(self) -> None:
        self._opened.set()


# -- what both keep --------------------------------------------------------------------------------


@pytest.mark.evidence("answers-survive-kill")
def test_an_answer_comes_when_the_change_is_committed(commits: Commits, metadata: Metadata) -> None:
    assert commits.submit(mkdirs("/a")).result(PATIENCE_S) is True
    assert names(metadata) == ["a"]


def test_a_request_that_fails_leaves_no_trace_and_gets_its_error(commits: Commits, metadata: Metadata) -> None:
    def half(tx: Transaction) -> None:
        mkdirs("/half")(tx)
        raise FileNotFound("the other half")

    def wrong(tx: Transaction) -> None:
        mkdirs("/wrong")(tx)
        raise ZeroDivisionError

    failed, broken, good = commits.submit(half), commits.submit(wrong), commits.submit(mkdirs("/good"))
    with pytest.raises(FileNotFound, match="the other half"):
        failed.result(PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        broken.result(PATIENCE_S)
    assert good.result(PATIENCE_S)
    assert names(metadata) == ["good"]


def test_a_request_that_breaks_a_constraint_is_its_own_fault_alone(
    commits: Commits, metadata: Metadata, faults: list[MetadataFault]
) -> None:
    commits.submit(mkdirs("/a")).result(PATIENCE_S)
    with pytest.raises(apsw.ConstraintError):
        commits.submit(lambda tx: tx.add_entry(1, "a", 99)).result(PATIENCE_S)
    assert commits.submit(mkdirs("/b")).result(PATIENCE_S) and faults == []


@pytest.mark.evidence("coordinator-disk-full")
def test_on_a_full_disk_changes_are_refused_until_there_is_room(
    commits: Commits, metadata: Metadata, faults: list[MetadataFault]
) -> None:
    """A refused change leaves no trace, neither on the disk nor in what the store remembers of directories."""
    commits.submit(mkdirs("/before")).result(PATIENCE_S)
    (pages_max,) = metadata.imaged().execute("PRAGMA max_page_count").fetchone()
    metadata.imaged().execute("PRAGMA max_page_count = 1")

    def too_much(tx: Transaction) -> None:
        for number in range(1000):
            mkdirs(f"/{number:0200}")(tx)

    for _ in range(2):
        with pytest.raises(ServiceUnready, match="disk is full") as refusal:
            commits.submit(too_much).result(PATIENCE_S)
        assert refusal.value.retriable
    assert names(metadata) == ["before"]
    metadata.imaged().execute(f"PRAGMA max_page_count = {pages_max}")
    assert commits.submit(mkdirs("/after")).result(PATIENCE_S)
    assert names(metadata) == ["after", "before"]
    assert commits.submit(lambda tx: tx.entry_count(1)).result(PATIENCE_S) == 2
    assert faults == []


@pytest.mark.evidence("coordinator-disk-full")
def test_full_disk_and_room_again_are_logged_once_each(metadata: Metadata) -> None:
    told: list[bool] = []
    commits = GroupCommit(metadata, lambda fault: pytest.fail(str(fault)), told.append)
    (pages_max,) = metadata.imaged().execute("PRAGMA max_page_count").fetchone()
    metadata.imaged().execute("PRAGMA max_page_count = 1")
    refused = [commits.submit(lambda tx: [mkdirs(f"/{number:0200}")(tx) for number in range(1000)]) for _ in "ab"]
    assert all(isinstance(future.exception(PATIENCE_S), ServiceUnready) for future in refused)
    assert commits.submit(lambda tx: tx.has_children(1)).result(PATIENCE_S) is False
    assert told == [False], "that nothing was written tells nothing"
    metadata.imaged().execute(f"PRAGMA max_page_count = {pages_max}")
    assert commits.submit(mkdirs("/after")).result(PATIENCE_S)
    commits.close()
    assert told == [False, True]


@pytest.mark.evidence("coordinator-disk-fails")
def test_a_disk_that_fails_is_fatal_and_nothing_is_acknowledged_afterwards(
    commits: Commits, metadata: Metadata, faults: list[MetadataFault]
) -> None:
    commits.submit(mkdirs("/before")).result(PATIENCE_S)
    metadata.imaged().execute("PRAGMA query_only = ON")
    for path in ("/during", "/after"):
        with pytest.raises(ServiceUnready):
            commits.submit(mkdirs(path)).result(PATIENCE_S)
        metadata.imaged().execute("PRAGMA query_only = OFF")
    with pytest.raises(MetadataFault):
        run_now(metadata, mkdirs("/after"))
    assert len(faults) == 1
    assert names(metadata) == ["before"]


@pytest.mark.evidence("answers-survive-kill")
def test_a_commit_of_the_store_is_synced_before_it_returns(metadata: Metadata) -> None:
    """SQLite does that by itself when it is told to; in the mode of its log that it is told to keep it in."""
    modes = [metadata.imaged().execute(f"PRAGMA {of}").fetchone()[0] for of in ("journal_mode", "synchronous")]
    assert modes == ["wal", 2]


# -- the group -------------------------------------------------------------------------------------


def test_requests_that_wait_share_a_commit_and_are_isolated_in_it(group: MakeGroup, metadata: Metadata) -> None:
    commits = group()
    gate = Gate(commits)

    def taken(tx: Transaction) -> None:
        mkdirs("/a/undone")(tx)
        raise FileAlreadyExists("taken")

    first = commits.submit(mkdirs("/a"))
    failed = commits.submit(taken)
    seen = commits.submit(lambda tx: tx.has_children(1))
    more = [commits.submit(mkdirs(f"/a/{number}")) for number in range(20)]
    assert names(metadata) == [] and not first.done()
    gate.open()
    assert all(future.result(PATIENCE_S) for future in more)
    assert first.result() and seen.result(), "a request sees those before it in the same commit"
    assert isinstance(failed.exception(), FileAlreadyExists)
    assert len(names(metadata, "/a")) == 20
    commits.close()
    assert (commits.commits, commits.requests) == (2, 24)


def test_a_commit_carries_no_more_than_its_limit(group: MakeGroup) -> None:
    commits = group(batch_max=4)
    gate = Gate(commits)
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(10)]
    gate.open()
    assert all(future.result(PATIENCE_S) for future in waiting)
    commits.close()
    assert commits.commits == 1 + 3


class PatientDelay(CommitDelay):
    """Expects as many as it is told to, and waits for them for as long as a broken test takes."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.expected = expected

    @property
    def wait_s(self) -> float:
        return PATIENCE_S

    def committed(self, together: int, waiting: int, taken_s: float) -> None:
        """Go on expecting the same."""


def test_commit_waits_for_the_changes_that_it_expects(metadata: Metadata) -> None:
    commits = GroupCommit(metadata, pytest.fail, delay=PatientDelay(3))
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(3)]
    assert all(future.result(PATIENCE_S) for future in waiting)
    assert commits.commits == 1
    alone = commits.submit(mkdirs("/alone"))
    began_s = time.monotonic()
    commits.close()
    assert alone.result(0) and time.monotonic() - began_s < PATIENCE_S, "who closes waits for nobody"


def test_commit_alone_waits_for_nobody_and_among_others_for_a_part_of_a_commits_time() -> None:
    delay = CommitDelay(share=0.5)
    delay.committed(1, 0, 0.002)
    assert delay.expected == 1
    for _ in range(50):
        delay.committed(3, 4, 0.002)
    assert delay.expected == 7 and delay.wait_s == pytest.approx(0.001, rel=0.01)
    delay.committed(1, 0, 0.002)
    assert delay.expected == 1, "the others went"


@pytest.mark.evidence("everything-is-bounded")
def test_commit_delay_is_bounded_however_many_wait_and_however_slow_the_disk_is() -> None:
    delay = CommitDelay()
    for _ in range(50):
        delay.committed(commit_batch_max, 10_000, 60.0)
    assert delay.expected == commit_batch_max
    assert delay.wait_s == commit_delay_s_max


@pytest.mark.evidence("everything-is-bounded")
def test_too_many_waiting_are_turned_away_at_once(group: MakeGroup, metadata: Metadata) -> None:
    commits = group(queue_max=2)
    gate = Gate(commits)
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(2)]
    with pytest.raises(Overloaded):
        commits.submit(mkdirs("/2"))
    gate.open()
    assert all(future.result(PATIENCE_S) for future in waiting)
    assert commits.submit(mkdirs("/2")).result(PATIENCE_S)


def test_background_changes_are_never_turned_away(group: MakeGroup, metadata: Metadata) -> None:
    """It has nobody who would ask again, and would stop the coordinator."""
    commits = group(queue_max=2)
    gate = Gate(commits)
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(2)]
    waiting.append(commits.submit(mkdirs("/own"), in_any_case=True))
    gate.open()
    assert all(future.result(PATIENCE_S) for future in waiting)
    assert names(metadata) == ["0", "1", "own"]


def test_a_request_that_was_given_up_while_it_waited_is_not_run(group: MakeGroup, metadata: Metadata) -> None:
    commits = group()
    gate = Gate(commits)
    given_up = commits.submit(mkdirs("/unwanted"))
    assert given_up.cancel() and not gate.passed.cancel()
    gate.open()
    assert commits.submit(mkdirs("/wanted")).result(PATIENCE_S)
    assert names(metadata) == ["wanted"]


def test_the_answers_of_one_commit_are_handed_over_together_and_after_it(
    group: MakeGroup, metadata: Metadata
) -> None:
    """Whoever waits in an event loop has it woken once, however many were answered."""
    handed_over: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    commits = group(deliver=handed_over.put)
    gate = Gate(commits)
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(5)]
    waiting.append(commits.submit(mkdirs("/no:such")))
    gate.open()
    handed_over.get(timeout=PATIENCE_S)()
    assert gate.passed.done() and not any(future.done() for future in waiting)
    settle = handed_over.get(timeout=PATIENCE_S)
    assert len(names(metadata)) == 5
    settle()
    assert all(future.result(0) for future in waiting[:5]) and waiting[5].exception(0) is not None
    assert handed_over.empty()


def test_closing_commits_what_waits_and_takes_nothing_more(group: MakeGroup, metadata: Metadata) -> None:
    commits = group()
    gate = Gate(commits)
    waiting = [commits.submit(mkdirs(f"/{number}")) for number in range(5)]
    gate.open()
    commits.close()
    assert all(future.done() and future.result() for future in waiting)
    with pytest.raises(ServiceUnready):
        commits.submit(mkdirs("/late"))
    assert len(names(metadata)) == 5


@pytest.mark.evidence("answers-survive-kill", "coordinator-disk-fails")
def test_a_fault_fails_all_that_wait(group: MakeGroup, metadata: Metadata, faults: list[MetadataFault]) -> None:
    commits = group(batch_max=2)
    gate = Gate(commits)
    waiting: list[Future[bool]] = [commits.submit(mkdirs(f"/{number}")) for number in range(5)]
    waiting[4].cancel()
    metadata.imaged().execute("PRAGMA query_only = ON")
    gate.open()
    for future in waiting[:4]:
        with pytest.raises(ServiceUnready, match="stopping"):
            future.result(PATIENCE_S)
    commits.close()
    assert len(faults) == 1
    assert names(metadata) == []


def test_a_view_shows_one_state_and_only_what_is_committed(group: MakeGroup, metadata: Metadata) -> None:
    commits = group()
    reader = metadata.reader()
    with reader.view():
        assert not reader.has_children(1)
        commits.submit(mkdirs("/a")).result(PATIENCE_S)
        assert not reader.has_children(1)
    assert reader.has_children(1)


def test_a_request_that_changes_nothing_costs_no_sync(
    group: MakeGroup, metadata: Metadata, tmp_path: Path
) -> None:
    commits = group()
    commits.submit(mkdirs("/a")).result(PATIENCE_S)
    log = tmp_path / "metadata.sqlite-wal"
    before = log.stat().st_size
    assert commits.submit(mkdirs("/a")).result(PATIENCE_S)
    missing = commits.submit(lambda tx: namespace.delete(tx, parse_path("/x"), True, 1))
    assert not missing.result(PATIENCE_S).done
    assert log.stat().st_size == before
