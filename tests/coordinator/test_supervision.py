"""Supervised queries: every phase, and what happens when drivers and nodes die."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.supervised import beat, query

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.supervision.core import (
    Supervision,
    agent_dead_after_s,
    supervised_backoff_max_s,
    supervised_settled_s,
)
from peacefs.coordinator.supervision.locality import AgentCandidate, Holdings, choose
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound, NodeIdTaken
from peacefs.protocol.messages import AgentBeat, AgentCommand, RunOrder, RunReport
from peacefs.protocol.values.supervised_queries import QueryPhase


@dataclass
class Play:
    """A supervision whose runs begin, and whose commits complete, at once."""

    now_s: float = 1000.0
    begun: int = 0
    core: Supervision = field(init=False)

    def __post_init__(self) -> None:
        self.core = Supervision(self.now_s)

    def later(self, seconds: float, *alive: str) -> None:
        """Let time pass, while these agents send a report every second."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.5
            for agent in alive:
                self.core.heard(self.now_s, beat(agent, *self._running(agent)))
            self.tick()

    def _running(self, agent: str) -> list[RunReport]:
        return [RunReport(order.query, order.run) for order in self.core.orders(agent)]

    def tick(self, holdings: Holdings | None = None) -> None:
        self.core.tick(self.now_s)
        for record in self.core.due(self.now_s):
            if self.core.place(self.now_s, record.name, holdings or Holdings()) is not None:
                self.begun += 1
                self.core.begun(self.now_s, record.name, f"1-{self.begun}", f"/there/{self.begun}")

    def run(self, name: str = "logins", agent: str = "a") -> RunReport:
        """Register and run the query. Return its agent's report."""
        self.core.heard(self.now_s, beat(agent))
        self.core.register(self.now_s, query(name))
        self.tick()
        assert self.of(name).phase is QueryPhase.RUNNING
        return RunReport(name, self.of(name).run)

    def of(self, name: str = "logins") -> QueryRecord:
        return self.core.queries[name].record


def ended(run: RunReport, status: int | None, said: str = "") -> RunReport:
    return RunReport(run.query, run.run, ended=True, status=status, last_words=said)


class TestItsLife:
    def test_it_is_started_where_somebody_may_start_it_and_told_its_run(self) -> None:
        play = Play()
        play.core.register(play.now_s, query())
        play.tick()
        assert play.of().phase is QueryPhase.WAITING
        play.core.heard(play.now_s, beat())
        play.tick()
        assert play.of().phase is QueryPhase.RUNNING
        assert play.core.orders("a") == [RunOrder("logins", "1-1", "alice", "count", [], "/there/1")]

    def test_query_that_ends_well_is_not_started_again(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("a", ended(run, 0)))
        play.later(120, "a")
        assert (play.of().phase, play.begun) == (QueryPhase.ENDED, 1)
        assert play.core.orders("a") == []

    def test_a_driver_that_dies_is_started_again_elsewhere_after_a_pause(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("b"))
        play.core.heard(play.now_s, beat("a", ended(run, 137, "out of memory")))
        assert play.of().phase is QueryPhase.WAITING
        assert play.of().reason == "exit status 137: out of memory"
        play.tick()
        assert play.of().phase is QueryPhase.WAITING, "there is a pause"
        play.later(2, "a", "b")
        assert (play.of().phase, play.of().agent, play.of().restarts) == (QueryPhase.RUNNING, "b", 1)

    def test_on_the_only_agent_it_is_started_again_there(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a", ended(play.run(), 1)))
        play.later(2, "a")
        assert (play.of().phase, play.of().agent) == (QueryPhase.RUNNING, "a")

    def test_a_node_that_falls_silent_is_waited_for_until_nothing_of_it_runs(self) -> None:
        play = Play()
        play.run()
        play.later(agent_dead_after_s - 1, "b")
        assert (play.of().phase, play.of().agent) == (QueryPhase.RUNNING, "a")
        play.later(4, "b")
        assert (play.of().phase, play.of().agent) == (QueryPhase.RUNNING, "b")
        assert [order.run for order in play.core.orders("b")] == ["1-2"]

    def test_an_agent_that_comes_back_is_not_told_to_go_on(self) -> None:
        play = Play()
        run = play.run()
        play.later(agent_dead_after_s + 4, "b")
        play.core.heard(play.now_s, beat("a", run))
        assert play.core.orders("a") == []
        assert play.of().agent == "b"

    def test_an_agent_that_was_started_anew_has_lost_what_it_ran(self) -> None:
        play = Play()
        play.run()
        play.later(5, "b")
        play.core.heard(play.now_s, beat("a", process="p2"))
        assert play.of().phase is QueryPhase.WAITING
        assert "agent a was stopped" in play.of().reason

    def test_an_agent_that_takes_its_leave_is_not_waited_for(self) -> None:
        play = Play()
        play.run()
        play.core.heard(play.now_s, beat("b"))
        play.core.heard(play.now_s, beat("a", leaving=True))
        assert play.of().phase is QueryPhase.WAITING
        play.later(2, "b")
        assert play.of().agent == "b"

    def test_two_processes_of_one_name_are_told_apart(self) -> None:
        play = Play()
        play.run()
        with pytest.raises(NodeIdTaken):
            play.core.heard(play.now_s + 1, beat("a", process="another"))
        assert play.of().phase is QueryPhase.RUNNING

    def test_too_many_failures_are_the_end_and_the_pauses_grow(self) -> None:
        play = Play()
        run, waited = play.run(), []
        while play.of().phase is not QueryPhase.FAILED:
            play.core.heard(play.now_s, beat("a", ended(run, 1)))
            at_s = play.now_s
            while play.of().phase is QueryPhase.WAITING:
                play.later(0.5, "a")
            waited.append(play.now_s - at_s)
            run = RunReport("logins", play.of().run)
        assert waited[:-1] == [1.0, 2.0, 4.0]
        assert play.begun == 4
        assert "failed 4 times" in play.of().reason
        assert max(waited) <= supervised_backoff_max_s

    def test_a_run_that_lasted_makes_up_for_failures_before_it(self) -> None:
        play = Play()
        run = play.run()
        for _ in range(10):
            play.later(supervised_settled_s, "a")
            play.core.heard(play.now_s, beat("a", ended(run, 1)))
            play.later(2, "a")
            run = RunReport("logins", play.of().run)
        assert (play.of().phase, play.of().restarts) == (QueryPhase.RUNNING, 1)

    def test_query_that_an_agent_cannot_start_is_tried_elsewhere(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("b"))
        play.core.heard(play.now_s, beat("a", ended(run, None, "no such directory")))
        assert play.of().reason == "it could not be started: no such directory"
        play.later(2, "a", "b")
        assert play.of().agent == "b"

    @pytest.mark.parametrize("for_good", [True, False])
    def test_a_run_that_cannot_be_begun(self, for_good: bool) -> None:
        play = Play()
        play.core.heard(play.now_s, beat())
        play.core.register(play.now_s, query())
        assert play.core.place(play.now_s, "logins", Holdings()) is not None
        play.core.refused(play.now_s, "logins", "not now", for_good=for_good)
        assert play.of().phase is (QueryPhase.FAILED if for_good else QueryPhase.WAITING)
        play.later(2, "a")
        assert play.of().phase is (QueryPhase.FAILED if for_good else QueryPhase.RUNNING)
        assert play.of().restarts == 0, "nothing was started"


class TestStopping:
    def test_one_that_waits_is_over_at_once(self) -> None:
        play = Play()
        play.core.register(play.now_s, query())
        play.core.stop("logins")
        assert play.of().phase is QueryPhase.STOPPED

    def test_one_that_is_being_started_is_never_told_to_an_agent(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat())
        play.core.register(play.now_s, query())
        play.core.place(play.now_s, "logins", Holdings())
        play.core.stop("logins")
        play.core.heard(play.now_s, beat())
        assert play.of().phase is QueryPhase.STOPPING
        play.core.begun(play.now_s, "logins", "1-1", "/there")
        assert play.of().phase is QueryPhase.STOPPED
        assert play.core.orders("a") == []

    def test_one_that_runs_is_over_when_its_agent_is_rid_of_it(self) -> None:
        play = Play()
        run = play.run()
        play.core.stop("logins")
        assert play.core.orders("a") == []
        play.core.heard(play.now_s, beat("a", run))
        assert play.of().phase is QueryPhase.STOPPING
        play.core.heard(play.now_s, beat("a", ended(run, 143)))
        assert play.of().phase is QueryPhase.STOPPED

    def test_one_whose_agent_is_gone_is_over_when_that_is_dead(self) -> None:
        play = Play()
        play.run()
        play.core.stop("logins")
        play.later(agent_dead_after_s + 1, "b")
        assert play.of().phase is QueryPhase.STOPPED

    def test_one_that_was_stopped_can_be_registered_again_and_forgotten(self) -> None:
        play = Play()
        play.core.register(play.now_s, query())
        with pytest.raises(BadRequest):
            play.core.forget("logins")
        play.core.stop("logins")
        play.core.register(play.now_s, query())
        assert play.of().phase is QueryPhase.WAITING
        play.core.stop("logins")
        play.core.forget("logins")
        with pytest.raises(FileNotFound):
            play.core.stop("logins")


class TestRegistering:
    def test_the_same_again_is_the_same_query(self) -> None:
        play = Play()
        run = play.run()
        assert play.core.register(play.now_s, query()) == []
        assert play.of().run == run.run

    def test_another_of_the_name_or_the_checkpoint_is_refused(self) -> None:
        play = Play()
        play.run()
        with pytest.raises(FileAlreadyExists):
            play.core.register(play.now_s, query(command=("other",)))
        with pytest.raises(BadRequest, match="is the checkpoint of query logins"):
            play.core.register(play.now_s, query("other", checkpoint="/checkpoints/logins"))

    def test_query_of_another_user_is_replaced_by_superusers_only_even_if_it_is_over(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a", ended(play.run(), 0)))
        assert play.of().phase is QueryPhase.ENDED
        with pytest.raises(FileAlreadyExists, match="another user has a query logins"):
            play.core.register(play.now_s, query(user="bob"))
        assert (play.of().user, play.of().phase) == ("alice", QueryPhase.ENDED)
        assert play.core.register(play.now_s, query(user="root", is_superuser=True))

    @pytest.mark.parametrize(
        ("changes", "may"),
        [
            ({}, True),
            ({"command": ("reboot",)}, False),
            ({"command": ("count", "--all")}, False),  # no arguments may be added
            ({"user": "bob"}, False),
            ({"user": "bob", "is_superuser": True}, True),
            ({"nodes": ("b",)}, False),
            ({"nodes": ("b", "a")}, True),
            ({"nodes": ("host-a",)}, True),
        ],
    )
    def test_only_what_the_agents_list_allows_is_started(self, changes: dict[str, object], may: bool) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a"))
        play.core.register(play.now_s, query(**changes))
        play.tick()
        assert (play.of().phase is QueryPhase.RUNNING) == may

    def test_an_agent_gets_no_more_than_it_takes(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a"))
        for number in range(3):
            play.core.register(play.now_s, query(f"q{number}"))
        play.tick()
        assert [play.of(f"q{number}").phase for number in range(3)] == [QueryPhase.RUNNING] * 2 + [
            QueryPhase.WAITING
        ]


class TestAnotherCoordinator:
    def test_running_query_goes_on(self) -> None:
        play = Play()
        run = play.run()
        after = Play()
        after.core.recall([play.of()])
        after.core.heard(after.now_s, beat("a", run))
        after.later(agent_dead_after_s + 2, "a")
        assert (after.of().phase, after.of().run, after.begun) == (QueryPhase.RUNNING, run.run, 0)

    def test_whose_agent_does_not_come_back_is_started_elsewhere_and_not_too_soon(self) -> None:
        play = Play()
        play.run()
        after = Play()
        after.core.recall([play.of()])
        after.later(agent_dead_after_s - 1, "b")
        assert after.of().agent == "a"
        after.later(4, "b")
        assert (after.of().phase, after.of().agent) == (QueryPhase.RUNNING, "b")

    def test_one_that_was_to_stop_before_it_was_begun_is_over(self) -> None:
        after = Play()
        after.core.recall([query(phase=QueryPhase.STOPPING, agent="a", process="p1")])
        assert after.of().phase is QueryPhase.STOPPED

    def test_its_own_pause_is_nobodys_silence(self) -> None:
        play = Play()
        run = play.run()
        play.now_s += 60
        play.tick()
        assert (play.of().phase, play.of().run) == (QueryPhase.RUNNING, run.run)


# Written by hand: the runs of each agent, its host and rack, and the expected choice.
@pytest.mark.parametrize(
    ("candidates", "failed_on", "chosen"),
    [
        ([("a", "h1", "/r1", 0), ("b", "h2", "/r1", 0)], None, "b"),  # more of it on its own host
        ([("a", "h9", "/r2", 0), ("b", "h8", "/r1", 0)], None, "a"),  # more of it in its rack
        ([("a", "h9", "", 0), ("b", "h2", "", 1)], None, "b"),  # its host before who has less to do
        ([("a", "h9", "/r2", 1), ("b", "h8", "/r2", 0)], None, "b"),  # then who has less to do
        ([("a", "h2", "/r2", 0), ("b", "h9", "/r9", 0)], "a", "b"),  # not where it has just failed
        ([("a", "h2", "/r2", 0)], "a", "a"),  # unless there is no other
        ([], None, None),
    ],
)
def test_it_goes_on_where_its_checkpoint_is(
    candidates: list[tuple[str, str, str, int]], failed_on: str | None, chosen: str | None
) -> None:
    holdings = Holdings({"h1": 10, "h2": 30}, {"/r1": 20, "/r2": 30}, {"h1": "/r1", "h2": "/r2"})
    assert choose([AgentCandidate(*each) for each in candidates], holdings, failed_on) == chosen


class TestWhyItWaits:
    """The test describes the agents; the message must say what is missing, and where."""

    @staticmethod
    def waits_for(record: QueryRecord, *beats: AgentBeat) -> str:
        play = Play()
        for each in beats:
            play.core.heard(play.now_s, each)
        play.core.register(play.now_s, record)
        play.tick()
        assert play.of().phase is QueryPhase.WAITING
        return play.core.waits_for(play.of(), play.core.runs_of_agents())

    def test_without_an_agent(self) -> None:
        assert self.waits_for(query()) == "no agent is alive: start `peacefs agent`"

    def test_for_a_command_that_no_agent_offers(self) -> None:
        others = [AgentCommand(name, ["alice"], extra_arguments=True) for name in ("x", "y")]
        said = self.waits_for(query(), beat("a", commands=others[:1]), beat("b", commands=others))
        assert said == "no agent offers the command `count'; a, b may start x, y"

    def test_for_a_command_without_naming_what_agents_start_for_others(self) -> None:
        both = [
            AgentCommand("mine", ["alice"], extra_arguments=True),
            AgentCommand("bobs", ["bob"], extra_arguments=True),
        ]
        assert self.waits_for(query(), beat("a", commands=both)).endswith("; a may start mine")
        assert self.waits_for(query(), beat("a", commands=both[1:])).endswith("; a may start nothing")

    def test_for_an_agent_that_may_start_it_for_its_user(self) -> None:
        said = self.waits_for(query(user="bob"), beat("a"), beat("b", commands=[]))
        assert said == "no agent may start `count' for bob; a may for others"

    def test_for_an_agent_that_takes_its_arguments(self) -> None:
        said = self.waits_for(query(command=("count", "--all")), beat("a"))
        assert said == "no agent may start `count' with arguments of a query; a may without"

    def test_for_an_agent_on_the_nodes_that_were_asked_for(self) -> None:
        said = self.waits_for(query(nodes=("n1", "n2")), beat("a"))
        assert said == "no agent is alive on n1, n2; agents are a"

    def test_for_room(self) -> None:
        said = self.waits_for(query(), *(beat(each, runs_max=0) for each in "abcde"))
        assert said == "every agent that may start `count' has as many runs as it may: a, b, c and 2 more"

    def test_for_an_agent_that_stays(self) -> None:
        said = self.waits_for(query(), beat("a", leaving=True))
        assert said == "a is being stopped, and no other agent may start `count'"

    def test_for_nothing_but_its_turn(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("a", ended(run, 1)))
        assert play.of().phase is QueryPhase.WAITING
        assert play.core.waits_for(play.of(), play.core.runs_of_agents()) == ""
