"""Repeated requests get the first answer, until it is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from peacefs.client.limits import client_answer_timeout_s, client_retry_s
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace.operations import mkdirs
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.reclaim import forget_answers_step, request_memory_crowded_s
from peacefs.coordinator.namespace.retry_cache import A, Applied, RequestKey, run_once
from peacefs.protocol.errors import BadRequest, FileAlreadyExists
from peacefs.protocol.ids import new_request_id

from .conftest import Space


def counting(answer: A, done: list[A]) -> Applied[A]:
    done.append(answer)
    return Applied(answer)


@pytest.mark.parametrize("answer", [True, False, None, 0, 2**40, "/d/.snapshot/s1"])
def test_the_first_answer_is_given_again_and_nothing_done(space: Space, answer: bool | int | str | None) -> None:
    done: list[bool | int | str | None] = []
    key = RequestKey("r-1", ("rename", "/a", "/b", 7, None, ["x"]))
    applied = [space.commit(lambda tx: run_once(tx, key, 1, lambda _: counting(answer, done))) for _ in range(3)]
    assert [one.answer for one in applied] == [answer] * 3 and type(applied[1].answer) is type(answer)
    assert [one.before for one in applied] == [False, True, True]
    assert done == [answer]


def test_requests_of_one_commit_that_bear_one_id_are_done_once(space: Space) -> None:
    done: list[int] = []
    key = RequestKey("r-1", ("delete", "/a"))
    outcomes = space.metadata.commit([lambda tx: run_once(tx, key, 1, lambda _: counting(5, done))] * 3)
    assert [outcome.answer.answer for outcome in outcomes] == [5, 5, 5] and done == [5]


def test_without_an_id_every_request_is_a_new_one(space: Space) -> None:
    done: list[int] = []
    for _ in range(2):
        space.commit(lambda tx: run_once(tx, RequestKey("", ()), 1, lambda _: counting(5, done)))
    assert done == [5, 5] and space.sql("SELECT * FROM request") == []


def test_another_request_under_the_same_id_is_refused_and_changes_nothing(space: Space) -> None:
    done: list[int] = []
    space.commit(lambda tx: run_once(tx, RequestKey("r-1", ("delete", "/a")), 1, lambda _: counting(1, done)))
    with pytest.raises(BadRequest, match="request id r-1 has been used for another request"):
        space.commit(lambda tx: run_once(tx, RequestKey("r-1", ("delete", "/b")), 1, lambda _: counting(2, done)))
    assert done == [1]


def test_an_id_that_is_too_long_is_refused(space: Space) -> None:
    with pytest.raises(BadRequest, match="request id of 129 characters"):
        space.commit(lambda tx: run_once(tx, RequestKey("x" * 129, ()), 1, lambda _: Applied(1)))


def test_a_request_that_failed_is_asked_again_for_the_first_time(space: Space) -> None:
    space.create("/d", 1)
    key = RequestKey("r-1", ("mkdirs", "/d"))

    def change(tx: Transaction) -> Applied[bool]:
        return Applied(mkdirs(tx, parse_path("/d"), "ann", 0o755, space.now_ms))

    with pytest.raises(FileAlreadyExists):
        space.commit(lambda tx: run_once(tx, key, 1, change))
    space.delete("/d")
    assert space.commit(lambda tx: run_once(tx, key, 1, change)) == Applied(True)


def test_answers_survive_a_store_that_was_never_closed(tmp_path: Path) -> None:
    key = RequestKey("r-1", ("delete", "/a"))
    killed = open_store(tmp_path / "metadata.sqlite", owner="root")
    killed.begin_epoch()
    run_now(killed, lambda tx: run_once(tx, key, 1, lambda _: Applied(True)))
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("metadata.sqlite*"):
        (copy / file.name).write_bytes(file.read_bytes())
    killed.close()
    started = open_store(copy / "metadata.sqlite", owner="root")
    assert run_now(started, lambda tx: run_once(tx, key, 2, lambda _: Applied(False))) == Applied(
        True, before=True
    )
    started.close()


def test_retry_cache_drops_the_oldest_replies_unless_they_are_young(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.reclaim.requests_forgotten_per_commit", 3)
    monkeypatch.setattr("peacefs.coordinator.namespace.reclaim.requests_remembered_max", 4)

    def ask(ids: range, now_ms: int) -> None:
        for number in ids:
            space.commit(
                lambda tx, n=number: run_once(tx, RequestKey(str(n), ()), now_ms, lambda _: Applied(True))
            )

    def left(now_ms: int) -> list[int]:
        while space.commit(lambda tx: forget_answers_step(tx, now_ms)):
            pass
        return [int(name) for (name,) in space.sql("SELECT request FROM request ORDER BY number")]

    ask(range(8), 0)
    crowded_ms = int(request_memory_crowded_s * 1000)
    assert left(crowded_ms) == list(range(8)), "all of them are young enough to be asked for"
    assert left(crowded_ms + 1) == [4, 5, 6, 7]
    ask(range(8, 10), crowded_ms)
    assert left(crowded_ms + 1) == [6, 7, 8, 9]
    assert left(86_400_001) == [8, 9], "the day is over for the others, however few there are"


def test_answers_are_kept_for_longer_than_any_client_goes_on_asking() -> None:
    assert request_memory_crowded_s > 2 * (client_retry_s + client_answer_timeout_s)


def test_ids_of_one_time_lie_together_and_none_is_drawn_twice() -> None:
    ids = [new_request_id() for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert [drawn[:12] for drawn in ids] == sorted(drawn[:12] for drawn in ids)
    assert len({drawn[:8] for drawn in ids}) <= 2, "a minute's"
