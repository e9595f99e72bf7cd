"""The standby of a supervised query: a waiting second driver, which gets the run when the first one dies."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.supervised import beat, query

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.supervision.core import (
    StandbyRun,
    Supervision,
    agent_dead_after_s,
    supervised_backoff_s,
    supervised_standby_after_s,
)
from peacefs.coordinator.supervision.locality import Holdings
from peacefs.protocol.messages import RunOrder, RunReport
from peacefs.protocol.values.supervised_queries import QueryPhase
from peacefs.spark_connector.supervision.reconciliation import reconcile


@dataclass
class Play:
    """A query with a standby. Runs begin at once; agents "a" and "b" report."""

    now_s: float = 1000.0
    numbers: int = 0
    core: Supervision = field(init=False)

    def __post_init__(self) -> None:
        self.core = Supervision(self.now_s)
        self.core.register(self.now_s, query(has_standby=True))

    @property
    def record(self) -> QueryRecord:
        return self.core.queries["logins"].record

    @property
    def standby(self) -> StandbyRun | None:
        return self.core.queries["logins"].standby

    def say(self, agent: str, *reports: RunReport) -> None:
        """Report from an agent: its ordered runs, or the given reports instead."""
        told = {report.run for report in reports}
        rest = [RunReport(each.query, each.run) for each in self.core.orders(agent) if each.run not in told]
        self.core.heard(self.now_s, beat(agent, *rest, *reports))
        self.tick()

    def tick(self) -> None:
        self.core.tick(self.now_s)
        for record in self.core.due(self.now_s):
            if self.core.place(self.now_s, record.name, Holdings()) is not None:
                self.core.begun(self.now_s, record.name, self._number(), f"/there/{self.numbers}")
        for record in self.core.without_standby(self.now_s):
            self.core.stand_by(record.name, self._number(), f"/there/{self.numbers}", Holdings())

    def later(self, seconds: float, *alive: str) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.5
            for agent in alive:
                self.say(agent)
            self.tick()

    def with_ready_standby(self, agents: str = "ab") -> StandbyRun:
        """Run the query on "a". Its standby is ready, on the last of the agents."""
        self.say("a")
        self.later(supervised_standby_after_s, *agents)
        assert self.standby is not None
        self.say(self.standby.agent, RunReport("logins", self.standby.number, is_ready=True))
        assert self.standby.is_ready
        return self.standby

    def _number(self) -> str:
        self.numbers += 1
        return f"1-{self.numbers}"


def died(run: str, status: int = 137) -> RunReport:
    return RunReport("logins", run, ended=True, status=status)


def test_standby_is_started_on_another_agent_once_the_query_runs() -> None:
    play = Play()
    play.say("a")
    play.say("b")
    assert (play.record.agent, play.standby) == ("a", None)
    play.later(supervised_standby_after_s, "a", "b")
    assert play.standby is not None and play.standby.agent == "b"
    assert play.core.orders("b") == [
        RunOrder("logins", play.standby.number, "alice", "count", [], play.standby.location, standby=True)
    ]


def test_standby_is_beside_its_query_where_there_is_one_agent() -> None:
    play = Play()
    standby = play.with_ready_standby("a")
    assert standby.agent == play.record.agent == "a"


def test_standby_takes_over_without_a_pause_when_the_driver_dies() -> None:
    play = Play()
    standby = play.with_ready_standby()
    old = play.record.run
    play.say("a", died(old))
    assert (play.record.phase, play.record.agent, play.record.restarts) == (QueryPhase.RUNNING, "b", 1)
    assert play.core.orders("a") == []
    (order,) = play.core.orders("b")
    assert (order.run, order.takes_over_from, order.standby) == (play.record.run, standby.number, False)
    assert play.record.run not in (old, standby.number)
    assert play.core.taken_over_total == 1
    play.later(supervised_standby_after_s, "a", "b")
    assert play.standby is not None and play.standby.agent == "a"


def test_standby_takes_over_when_the_agent_of_the_driver_falls_silent() -> None:
    play = Play()
    standby = play.with_ready_standby()
    until_s = play.now_s + agent_dead_after_s
    while play.now_s <= until_s:
        play.now_s += 0.5
        play.say("b", *(RunReport("logins", each.run, is_ready=True) for each in play.core.orders("b")))
    assert (play.record.agent, play.core.orders("b")[0].takes_over_from) == ("b", standby.number)


def test_standby_that_is_not_ready_is_not_waited_for() -> None:
    play = Play()
    play.say("a")
    play.later(supervised_standby_after_s, "a", "b")
    assert play.standby is not None
    play.say("a", died(play.record.run))
    assert play.record.phase is QueryPhase.WAITING
    play.later(2 * supervised_backoff_s, "a", "b")
    assert play.record.phase is QueryPhase.RUNNING
    assert play.core.taken_over_total == 0


def test_standby_that_becomes_ready_while_the_query_waits_takes_over() -> None:
    play = Play()
    play.say("a")
    play.later(supervised_standby_after_s, "a", "b")
    assert play.standby is not None
    number = play.standby.number
    play.say("a", died(play.record.run))
    assert play.record.phase is QueryPhase.WAITING
    play.say("b", RunReport("logins", number, is_ready=True))
    assert play.record.phase is QueryPhase.RUNNING
    assert play.core.orders("b")[0].takes_over_from == number


def test_standby_that_dies_is_replaced_after_pauses_that_grow_and_the_query_is_untouched() -> None:
    play = Play()
    play.with_ready_standby()
    run = play.record.run
    pauses = []
    for _ in range(3):
        assert play.standby is not None
        play.say("b", died(play.standby.number, 1))
        assert play.standby is None
        since_s = play.now_s
        while play.standby is None:
            play.later(0.5, "a", "b")
        pauses.append(play.now_s - since_s)
    assert pauses == sorted(pauses) and pauses[-1] >= 4 * supervised_backoff_s
    assert (play.record.run, play.record.restarts) == (run, 0)


def test_standby_is_ended_when_its_query_is_stopped() -> None:
    play = Play()
    play.with_ready_standby()
    play.core.stop("logins")
    assert play.core.orders("b") == []


def test_standby_takes_a_place_of_its_agent() -> None:
    play = Play()
    play.with_ready_standby()
    for name in ("second", "third", "fourth"):
        play.core.register(play.now_s, query(name))
    play.later(1.0, "a", "b")
    phases = [play.core.queries[name].record.phase for name in ("second", "third", "fourth")]
    assert phases.count(QueryPhase.RUNNING) == 2, "two agents with two places each, of which two were taken"


def test_standby_which_dies_as_it_is_chosen_leaves_the_run_to_a_new_process() -> None:
    play = Play()
    standby = play.with_ready_standby()
    play.core.heard(play.now_s, beat("a", died(play.record.run)))
    assert play.core.place(play.now_s, "logins", Holdings()) is not None
    play.core.heard(play.now_s, beat("b", died(standby.number)))
    play.core.begun(play.now_s, "logins", "1-9", "/there/9")
    (order,) = play.core.orders("b")
    assert (order.run, order.takes_over_from) == ("1-9", "")


def test_standby_of_an_agent_beside_a_running_query_starts_at_once_and_its_run_replaces_it() -> None:
    first = RunOrder("q", "1-1", "u", "c", [], "/1")
    standby = RunOrder("q", "1-2", "u", "c", [], "/2", standby=True)
    taken = RunOrder("q", "1-3", "u", "c", [], "/3", takes_over_from="1-2")
    assert reconcile([("q", "1-1")], [], [first, standby]).start == [standby]
    steps = reconcile([("q", "1-2")], [("q", "1-1")], [taken], [("q", "1-2")])
    assert steps == ([], [], [("q", "1-1")], [taken])


def test_run_of_a_standby_that_is_gone_is_started_anew() -> None:
    taken = RunOrder("q", "1-3", "u", "c", [], "/3", takes_over_from="1-2")
    assert reconcile([], [("q", "1-2")], [taken]).start == [taken]
