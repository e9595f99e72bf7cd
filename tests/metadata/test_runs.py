"""Only the latest run of a query can change its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.coordinator.metadata.model import RecordedRun
from peacefs.coordinator.metadata.sqlite.check import check
from peacefs.coordinator.metadata.sqlite.file import change_rows
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import query_runs as runs
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.rename import exchange
from peacefs.protocol.errors import BadRequest, FileNotFound, ParentNotDirectory, RunSuperseded
from peacefs.protocol.ids import first_of_epoch, read, show
from peacefs.protocol.values.query_runs import component_of, run_of, without_run

from .conftest import Space

ROOT = "/ck/orders"


def begin(space: Space, root: str = ROOT) -> str:
    """Begin a run. Return its location."""
    path, number = parse_path(root), first_of_epoch(3) + next(space._numbers)
    space.commit(lambda tx: runs.begin(tx, path, RecordedRun(number, "ann", "host-a", 77, space.now_ms, None)))
    return str(runs.location(path, number))


@pytest.fixture(name="root")
def _root(space: Space) -> str:
    space.mkdirs(f"{ROOT}/offsets")
    return ROOT


def refused(change: Callable[[], object]) -> str:
    with pytest.raises(RunSuperseded) as caught:
        change()
    return str(caught.value)


@given(st.integers(0, (1 << 63) - 1))
def test_a_run_is_told_from_its_name_and_no_other_name_is_one(number: int) -> None:
    assert read(show(number)) == number
    assert run_of(component_of(number)) == number
    for other in (
        show(number),
        f".run-{number}",
        f".run-0{show(number)}",
        f".run-{show(number)}x",
        ".run-",
        ".run",
    ):
        assert run_of(other) is None


def test_a_path_of_a_run_leads_where_it_would_without_it() -> None:
    plain, of_run = parse_path("/ck/orders/offsets/7"), parse_path("/ck/orders/.run-3-1f/offsets/7")
    assert (of_run.components, plain.writer) == (plain.components, None)
    assert of_run.writer == (2, first_of_epoch(3) + 0x1F)
    assert [str(of_run), str(of_run.ancestor(2)), str(of_run.ancestor(1))] == [
        "/ck/orders/.run-3-1f/offsets/7",
        "/ck/orders/.run-3-1f",
        "/ck",
    ]
    assert str(of_run.child("x")) == "/ck/orders/.run-3-1f/offsets/7/x"
    assert parse_path(str(of_run)) == of_run
    assert without_run(str(of_run)) == str(plain) == without_run(str(plain))
    assert without_run("/.run-3-1f") == "/"
    with pytest.raises(BadRequest, match="names 2 runs"):
        parse_path("/ck/.run-3-1/orders/.run-3-2")
    assert parse_path("/ck/.run-x/f").components == ("ck", ".run-x", "f"), "a name like any other"


def test_the_latest_run_writes_and_everyone_reads_by_any_path(space: Space, root: str) -> None:
    first = begin(space)
    space.create(f"{first}/offsets/0", 10)
    assert space.names(f"{root}/offsets") == space.names(f"{first}/offsets") == ["0"]
    second = begin(space)
    said = refused(lambda: space.create(f"{first}/offsets/1", 10))
    assert (
        f"{root} may write no more: run {second.rpartition('-run-')[2]} has taken over" in said or "taken" in said
    )
    assert "process 77 on host-a, since 1970-01-01" in said
    space.create(f"{second}/offsets/1", 10)
    assert space.names(f"{first}/offsets") == ["0", "1"], "who was fenced off may look"
    assert space.status(f"{first}/offsets/0").length == 10
    space.create(f"{root}/offsets/2", 10)
    assert space.names(root) == ["offsets"], "a run is no entry"


def test_cached_reply_is_given_again_after_the_fence(space: Space, root: str) -> None:
    first = begin(space)
    done = space.completion(f"{first}/offsets/0", 10)
    assert space.complete(done).length == 10
    begin(space)
    assert space.complete(done).length == 10


def test_an_append_that_began_before_the_fence_is_not_completed_after_it(space: Space, root: str) -> None:
    first = begin(space)
    space.create(f"{first}/log", 10)
    lease, file = space.take_lease(f"{first}/log")
    begin(space)
    refused(lambda: space.extend(space.extension(lease, file.inode, 5, path=f"{first}/log")))
    refused(lambda: space.take_lease(f"{first}/log"))
    assert space.status(f"{root}/log").length == 10


def test_a_root_that_is_gone_or_another_lets_no_run_write(space: Space, root: str) -> None:
    first = begin(space)
    space.rename(root, "/ck/kept")
    assert "was deleted or renamed" in refused(lambda: space.mkdirs(f"{first}/state"))
    assert not space.names("/ck/kept/offsets")
    space.mkdirs(root)
    assert "another directory is there now" in refused(lambda: space.mkdirs(f"{first}/state"))
    space.delete(root)
    space.rename("/ck/kept", root)
    assert space.mkdirs(f"{first}/state"), "the directory that it was given is back"
    space.delete(root)
    space.mkdirs(root)
    again = begin(space)
    assert again > first
    refused(lambda: space.create(f"{first}/offsets/0", 10))
    space.reclaim()
    assert space.sql("SELECT count(*) FROM run") == [(1,)], "a run goes with its directory"


def test_a_tree_that_takes_a_roots_place_has_no_run(space: Space, root: str) -> None:
    first = begin(space)
    space.copy(root, "/ck/staged")
    pair = (parse_path(first), parse_path("/ck/staged"))
    space.commit(lambda tx: exchange(tx, [pair], space.now_ms))
    refused(lambda: space.create(f"{first}/offsets/0", 10))
    space.create(f"{begin(space)}/offsets/0", 10)


def test_an_exchange_under_a_run_is_refused_when_another_has_begun(space: Space, root: str) -> None:
    first = begin(space)
    space.copy(root, "/ck/staged")
    begin(space)
    before = space.status(root).inode
    pair = (parse_path(first), parse_path("/ck/staged"))
    refused(lambda: space.commit(lambda tx: exchange(tx, [pair], space.now_ms)))
    assert space.status(root).inode == before


def test_a_run_that_is_over_says_so_once_and_stays_the_latest(space: Space, root: str) -> None:
    first = parse_path(begin(space))

    def ended() -> int | None:
        run = space.reader.run(space.status(root).inode)
        assert run is not None
        return run.ended_ms

    assert ended() is None
    space.commit(lambda tx: runs.end(tx, first, 7_000))
    space.commit(lambda tx: runs.end(tx, first, 8_000))
    assert ended() == 7_000
    space.create(f"{first}/offsets/0", 10)
    for wrong in (parse_path(root), first.child("offsets")):
        with pytest.raises(BadRequest, match="no location"):
            space.commit(partial(runs.end, location=wrong, now_ms=9_000))
    begin(space)
    refused(lambda: space.commit(lambda tx: runs.end(tx, first, 9_000)))


def test_runs_survive_a_restart_and_fit_the_rest(tmp_path: Path) -> None:
    metadata = open_store(tmp_path / "store", owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    space.mkdirs(ROOT)
    first, second = begin(space), begin(space)
    metadata.close()
    metadata = open_store(tmp_path / "store", owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    refused(lambda: space.mkdirs(f"{first}/state"))
    assert space.mkdirs(f"{second}/state")
    metadata.close()
    assert check(tmp_path / "store", lambda *_: None).problems == []
    change_rows(tmp_path / "store", [("UPDATE run SET directory = 999", ())])
    problems = check(tmp_path / "store", lambda *_: None).problems
    assert [problem.name for problem in problems] == ["a run is of a directory"]


def test_a_run_is_of_a_directory_that_is_there(space: Space, root: str) -> None:
    space.create("/file", 1)
    with pytest.raises(ParentNotDirectory):
        begin(space, "/file")
    with pytest.raises(FileNotFound):
        begin(space, "/nothing")
