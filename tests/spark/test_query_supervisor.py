"""Supervising a query, and killing it within a batch, with a fake query and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peacefs.protocol.errors import QueryFailed
from peacefs.service.signs_of_life import idle_processor_fraction
from peacefs.spark_connector.demo import query_supervisor
from peacefs.spark_connector.demo.query_plan import STOPPED
from peacefs.spark_connector.demo.query_supervisor import (
    QuerySupervisor,
    demo_kills_max,
    query_restarts_max,
    query_silence_s,
    query_stall_s,
    why_stopped,
)

Turn = tuple[int | None, int | None, int | None]


class World:
    """Plays a query turn by turn: (begun, committed, exit status). Each sleep moves the clock."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self.now = 0.0
        self.starts = 0
        self.kills = 0
        self.log = [STOPPED + "java.io.IOException: gateway gone"]
        self.observed: list[int] = []
        self.told: list[str] = []
        #: The growth of its processor time and of its log.
        self.share = 0.0
        self.said_lines = 0

    # the supervisor's process

    @property
    def status(self) -> int | None:
        return self.turns[0][2]

    @property
    def processor_s(self) -> float:
        return self.now * self.share

    @property
    def said_bytes(self) -> int:
        return self.said_lines

    def kill(self) -> None:
        self.kills += 1

    def last_words(self, lines: int) -> list[str]:
        return self.log[-lines:]

    # the supervisor's checkpoint

    def begun(self) -> int | None:
        return self.turns[0][0]

    def committed(self) -> int | None:
        return self.turns[0][1]

    # the supervisor's clock

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if len(self.turns) > 1:
            self.turns.pop(0)

    def start(self) -> Any:
        self.starts += 1
        return self


@pytest.fixture
def supervise(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Turn]], tuple[World, QuerySupervisor]]:
    def build(turns: list[Turn]) -> tuple[World, QuerySupervisor]:
        world = World([(None, None, None), *turns])
        monkeypatch.setattr(query_supervisor, "time", world)
        checkpoint: Any = world
        return world, QuerySupervisor(world.start, checkpoint, world.observed.append, world.told.append)

    return build


Supervise = Callable[[list[Turn]], tuple[World, QuerySupervisor]]


def test_it_kills_in_the_first_batch_that_is_begun_and_not_committed(supervise: Supervise) -> None:
    world, supervisor = supervise([(0, None, None), (1, 1, None), (3, 2, None), (3, 2, None), (3, 2, None)])
    with supervisor:
        assert supervisor.kill_in_batch(3, lambda: 0.1) == 3
        assert world.kills == 1
    assert world.starts == 1
    assert supervisor.restarts == []


def test_a_batch_that_was_committed_after_all_does_not_count(supervise: Supervise) -> None:
    world, supervisor = supervise(
        [(3, 2, None), (3, 2, None), (3, 3, None), (3, 3, None), (4, 3, None), (4, 3, None), (4, 3, None)]
    )
    with supervisor:
        assert supervisor.kill_in_batch(3, lambda: 0.1) == 4
    assert world.starts == 2
    assert supervisor.restarts == ["batch 3 was committed before the kill"]


def test_a_batch_left_over_from_the_run_before_is_not_the_middle_of_one(supervise: Supervise) -> None:
    _, supervisor = supervise(
        [(3, 2, 1), (3, 2, None), (3, 2, None), (4, 3, None), (4, 3, None), (4, 3, None)],
    )
    with supervisor:
        assert supervisor.kill_in_batch(3, lambda: 0.1) == 4
    assert supervisor.restarts == ["java.io.IOException: gateway gone"]


def test_it_gives_up_to_hit_a_batch_in_the_end(supervise: Supervise) -> None:
    turns: list[Turn] = []
    for batch in range(3, 10):
        turns += [(batch, batch - 1, None), (batch, batch - 1, None), (batch, batch, None)]
    _, supervisor = supervise(turns)
    with supervisor, pytest.raises(QueryFailed, match="no batch could be hit"):
        supervisor.kill_in_batch(3, lambda: 0.1)
    assert len(supervisor.restarts) == demo_kills_max


def test_a_query_that_ends_before_it_can_be_killed_is_said_so(supervise: Supervise) -> None:
    _, supervisor = supervise([(2, 2, None), (2, 2, 0)])
    with supervisor, pytest.raises(QueryFailed, match="ended before batch 3"):
        supervisor.kill_in_batch(3, lambda: 0.1)


def test_a_query_that_stops_is_started_again_and_the_reason_is_told(supervise: Supervise) -> None:
    world, supervisor = supervise([(4, 3, None), (4, 3, 1), (4, 3, None), (5, 5, None), (5, 5, 0)])
    with supervisor:
        supervisor.run_to_end()
    assert world.starts == 2
    assert supervisor.restarts == ["java.io.IOException: gateway gone"]
    assert world.told == ["the query stopped: java.io.IOException: gateway gone"]
    assert world.observed == [4, 6]


def test_a_query_that_stops_again_and_again_is_given_up(supervise: Supervise) -> None:
    world, supervisor = supervise([(4, 3, 1)])
    with supervisor, pytest.raises(QueryFailed, match="stopped more than"):
        supervisor.run_to_end()
    assert world.starts == 1 + query_restarts_max


def test_query_that_does_nothing_is_given_up(supervise: Supervise) -> None:
    world, supervisor = supervise([(4, 3, None)])
    with supervisor, pytest.raises(QueryFailed, match="no sign of life"):
        supervisor.run_to_end()
    assert query_silence_s <= world.now <= query_silence_s + 1


def test_query_whose_jvm_is_idle_is_given_up(supervise: Supervise) -> None:
    world, supervisor = supervise([(4, 3, None)])
    world.share = idle_processor_fraction / 2
    with supervisor, pytest.raises(QueryFailed, match="no sign of life"):
        supervisor.run_to_end()
    assert query_silence_s <= world.now <= query_silence_s + 1


def test_query_that_is_slow_on_a_busy_machine_is_waited_for(supervise: Supervise) -> None:
    """It gets a small share of the processors, and a batch takes several times the limit for a hung query."""
    turns = round(4 * query_silence_s / 0.05)
    world, supervisor = supervise([*[(4, 3, None)] * turns, (4, 4, None), (4, 4, 0)])
    world.share = 2 * idle_processor_fraction
    with supervisor:
        supervisor.run_to_end()
    assert world.now > 4 * query_silence_s and supervisor.restarts == []


def test_query_that_writes_to_its_log_is_waited_for(supervise: Supervise) -> None:
    turns = round(3 * query_silence_s / 0.05)
    world, supervisor = supervise([*[(4, 3, None)] * turns, (4, 4, 0)])

    sleep = world.sleep

    def sleep_and_log(seconds: float) -> None:
        sleep(seconds)
        world.said_lines = round(world.now // (query_silence_s / 2))

    world.sleep = sleep_and_log  # type: ignore[method-assign]
    with supervisor:
        supervisor.run_to_end()
    assert world.now > 3 * query_silence_s


def test_query_that_is_busy_for_ever_is_given_up_in_the_end(supervise: Supervise) -> None:
    world, supervisor = supervise([(4, 3, None)])
    world.share = 1.0
    with supervisor, pytest.raises(QueryFailed, match="finished no batch in 30 minutes"):
        supervisor.run_to_end()
    assert query_stall_s <= world.now <= query_stall_s + 1


def test_the_reason_is_what_the_run_said_at_its_end() -> None:
    assert (
        why_stopped(["WARN x", STOPPED + "java.net.ConnectException: refused"])
        == "java.net.ConnectException: refused"
    )
    assert why_stopped([STOPPED + "x", "Killed"]) is None
    assert why_stopped([]) is None
    assert len(why_stopped([STOPPED + "x" * 1000]) or "") < 200
