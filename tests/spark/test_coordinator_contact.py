"""An agent that cannot reach its coordinator logs it once, and retries at growing intervals."""

from __future__ import annotations

from peacefs.spark_connector.supervision.coordinator_contact import (
    CoordinatorContact,
    CoordinatorTurns,
    agent_retry_busy_max_s,
    agent_retry_max_s,
    agent_retry_s,
)
from peacefs.spark_connector.supervision.run_guard import run_guard_timeout_s

GONE = "cannot reach the coordinator at 127.0.0.1:9820"


def test_agent_says_once_that_it_cannot_reach_its_coordinator_and_once_that_it_can_again() -> None:
    contact = CoordinatorContact()
    said = [contact.failed(GONE, "unreachable", busy=False)[0] for _ in range(100)]
    assert said == [f"{GONE}; trying again, less and less often"] + [None] * 99
    assert contact.answered() == "the coordinator answers again"
    assert contact.answered() is None
    assert contact.failed(GONE, "unreachable", busy=False)[0] is not None


def test_agent_waits_longer_after_each_failure_and_begins_anew_after_an_answer() -> None:
    contact = CoordinatorContact()
    pauses = [contact.failed(GONE, "unreachable", busy=False)[1] for _ in range(2000)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (agent_retry_s, agent_retry_max_s)
    contact.answered()
    assert contact.failed(GONE, "unreachable", busy=False)[1] == agent_retry_s


def test_agent_that_runs_something_asks_several_times_before_its_runs_end() -> None:
    contact = CoordinatorContact()
    contact.failed(GONE, "unreachable", busy=False)
    pauses = [contact.failed(GONE, "unreachable", busy=True)[1] for _ in range(20)]
    assert max(pauses) == agent_retry_busy_max_s
    assert 4 * agent_retry_busy_max_s < run_guard_timeout_s


def test_agent_says_a_fault_of_another_kind_too() -> None:
    contact = CoordinatorContact()
    contact.failed(GONE, "unreachable", busy=False)
    refusal = "the coordinator refuses this agent: wrong secret"
    assert contact.failed(refusal, refusal, busy=False)[0] == f"{refusal}; trying again, less and less often"
    assert contact.failed(refusal, refusal, busy=False)[0] is None


def test_coordinators_are_asked_in_turn_and_after_all_there_is_a_pause() -> None:
    turns = CoordinatorTurns(3)
    assert [(turns.current, turns.move_on()) for _ in range(7)] == [
        (0, True),
        (1, True),
        (2, False),
        (0, True),
        (1, True),
        (2, False),
        (0, True),
    ]
    turns.answered()
    assert turns.current == 1
    assert [turns.move_on() for _ in range(3)] == [True, True, False]


def test_coordinator_without_a_standby_is_the_only_one() -> None:
    turns = CoordinatorTurns(1)
    assert [(turns.current, turns.move_on()) for _ in range(2)] == [(0, False), (0, False)]
