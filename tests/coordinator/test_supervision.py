"""Supervised queries: every step of their life, what becomes of them when drivers and nodes die."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from simulation.seeds import seeds

from peacefs.coordinator.records import QueryRecord
from peacefs.coordinator.recovery_place import Candidate, Holdings, choose
from peacefs.coordinator.supervision import Supervision
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound, NodeIdTaken
from peacefs.protocol.limits import (
    agent_answer_timeout_s,
    agent_beat_interval_s,
    agent_dead_after_s,
    run_guard_patience_s,
    supervised_backoff_max_s,
    supervised_settled_s,
)
from peacefs.protocol.messages import AgentBeat, AgentCommand, RunOrder, RunReport
from peacefs.protocol.supervised import Phase
from peacefs.spark_connector.supervision.reconciliation import Key, key_of, reconcile


def query(name: str = "logins", **changes: object) -> QueryRecord:
    fields: dict[str, object] = {
        "name": name,
        "user": "alice",
        "is_superuser": False,
        "command": ("count",),
        "checkpoint": f"/checkpoints/{name}",
        "nodes": (),
        "restarts_max": 3,
    }
    return QueryRecord(**{**fields, **changes})  # type: ignore[arg-type]


def beat(agent: str = "a", *runs: RunReport, process: str = "p1", **changes: object) -> AgentBeat:
    fields: dict[str, object] = {
        "host": f"host-{agent}",
        "rack": "/r",
        "commands": [AgentCommand("count", ["alice"], extra_arguments=False)],
        "runs_max": 2,
    }
    return AgentBeat(agent=agent, process=process, runs=list(runs), **{**fields, **changes})  # type: ignore[arg-type]


@dataclass
class Play:
    """A supervision whose runs are begun at once and whose commits are done at once."""

    now_s: float = 1000.0
    begun: int = 0
    core: Supervision = field(init=False)

    def __post_init__(self) -> None:
        self.core = Supervision(self.now_s)

    def later(self, seconds: float, *alive: str) -> None:
        """Time goes on, in which these agents say what they say every second."""
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
        """The query is registered, and runs; as its agent tells of it."""
        self.core.heard(self.now_s, beat(agent))
        self.core.register(self.now_s, query(name))
        self.tick()
        assert self.of(name).phase is Phase.RUNNING
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
        assert play.of().phase is Phase.WAITING
        play.core.heard(play.now_s, beat())
        play.tick()
        assert play.of().phase is Phase.RUNNING
        assert play.core.orders("a") == [RunOrder("logins", "1-1", "alice", "count", [], "/there/1")]

    def test_what_ends_well_is_not_started_again(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("a", ended(run, 0)))
        play.later(120, "a")
        assert (play.of().phase, play.begun) == (Phase.ENDED, 1)
        assert play.core.orders("a") == []

    def test_a_driver_that_dies_is_started_again_elsewhere_after_a_pause(self) -> None:
        play = Play()
        run = play.run()
        play.core.heard(play.now_s, beat("b"))
        play.core.heard(play.now_s, beat("a", ended(run, 137, "out of memory")))
        assert play.of().phase is Phase.WAITING
        assert play.of().reason == "exit status 137: out of memory"
        play.tick()
        assert play.of().phase is Phase.WAITING, "there is a pause"
        play.later(2, "a", "b")
        assert (play.of().phase, play.of().agent, play.of().restarts) == (Phase.RUNNING, "b", 1)

    def test_on_the_only_agent_it_is_started_again_there(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a", ended(play.run(), 1)))
        play.later(2, "a")
        assert (play.of().phase, play.of().agent) == (Phase.RUNNING, "a")

    def test_a_node_that_falls_silent_is_waited_for_until_nothing_of_it_runs(self) -> None:
        play = Play()
        play.run()
        play.later(agent_dead_after_s - 1, "b")
        assert (play.of().phase, play.of().agent) == (Phase.RUNNING, "a")
        play.later(4, "b")
        assert (play.of().phase, play.of().agent) == (Phase.RUNNING, "b")
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
        assert play.of().phase is Phase.WAITING
        assert "agent a was stopped" in play.of().reason

    def test_an_agent_that_takes_its_leave_is_not_waited_for(self) -> None:
        play = Play()
        play.run()
        play.core.heard(play.now_s, beat("b"))
        play.core.heard(play.now_s, beat("a", leaving=True))
        assert play.of().phase is Phase.WAITING
        play.later(2, "b")
        assert play.of().agent == "b"

    def test_two_processes_of_one_name_are_told_apart(self) -> None:
        play = Play()
        play.run()
        with pytest.raises(NodeIdTaken):
            play.core.heard(play.now_s + 1, beat("a", process="another"))
        assert play.of().phase is Phase.RUNNING

    def test_too_many_failures_are_the_end_and_the_pauses_grow(self) -> None:
        play = Play()
        run, waited = play.run(), []
        while play.of().phase is not Phase.FAILED:
            play.core.heard(play.now_s, beat("a", ended(run, 1)))
            at_s = play.now_s
            while play.of().phase is Phase.WAITING:
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
        assert (play.of().phase, play.of().restarts) == (Phase.RUNNING, 1)

    def test_what_an_agent_cannot_start_is_tried_elsewhere(self) -> None:
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
        assert play.of().phase is (Phase.FAILED if for_good else Phase.WAITING)
        play.later(2, "a")
        assert play.of().phase is (Phase.FAILED if for_good else Phase.RUNNING)
        assert play.of().restarts == 0, "nothing was started"


class TestStopping:
    def test_one_that_waits_is_over_at_once(self) -> None:
        play = Play()
        play.core.register(play.now_s, query())
        play.core.stop("logins")
        assert play.of().phase is Phase.STOPPED

    def test_one_that_is_being_started_is_never_told_to_an_agent(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat())
        play.core.register(play.now_s, query())
        play.core.place(play.now_s, "logins", Holdings())
        play.core.stop("logins")
        play.core.heard(play.now_s, beat())
        assert play.of().phase is Phase.STOPPING
        play.core.begun(play.now_s, "logins", "1-1", "/there")
        assert play.of().phase is Phase.STOPPED
        assert play.core.orders("a") == []

    def test_one_that_runs_is_over_when_its_agent_is_rid_of_it(self) -> None:
        play = Play()
        run = play.run()
        play.core.stop("logins")
        assert play.core.orders("a") == []
        play.core.heard(play.now_s, beat("a", run))
        assert play.of().phase is Phase.STOPPING
        play.core.heard(play.now_s, beat("a", ended(run, 143)))
        assert play.of().phase is Phase.STOPPED

    def test_one_whose_agent_is_gone_is_over_when_that_is_dead(self) -> None:
        play = Play()
        play.run()
        play.core.stop("logins")
        play.later(agent_dead_after_s + 1, "b")
        assert play.of().phase is Phase.STOPPED

    def test_one_that_was_stopped_can_be_registered_again_and_forgotten(self) -> None:
        play = Play()
        play.core.register(play.now_s, query())
        with pytest.raises(BadRequest):
            play.core.forget("logins")
        play.core.stop("logins")
        play.core.register(play.now_s, query())
        assert play.of().phase is Phase.WAITING
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
        assert (play.of().phase is Phase.RUNNING) == may

    def test_an_agent_gets_no_more_than_it_takes(self) -> None:
        play = Play()
        play.core.heard(play.now_s, beat("a"))
        for number in range(3):
            play.core.register(play.now_s, query(f"q{number}"))
        play.tick()
        assert [play.of(f"q{number}").phase for number in range(3)] == [Phase.RUNNING] * 2 + [Phase.WAITING]


class TestAnotherCoordinator:
    def test_what_runs_goes_on(self) -> None:
        play = Play()
        run = play.run()
        after = Play()
        after.core.recall([play.of()])
        after.core.heard(after.now_s, beat("a", run))
        after.later(agent_dead_after_s + 2, "a")
        assert (after.of().phase, after.of().run, after.begun) == (Phase.RUNNING, run.run, 0)

    def test_whose_agent_does_not_come_back_is_started_elsewhere_and_not_too_soon(self) -> None:
        play = Play()
        play.run()
        after = Play()
        after.core.recall([play.of()])
        after.later(agent_dead_after_s - 1, "b")
        assert after.of().agent == "a"
        after.later(4, "b")
        assert (after.of().phase, after.of().agent) == (Phase.RUNNING, "b")

    def test_one_that_was_to_stop_before_it_was_begun_is_over(self) -> None:
        after = Play()
        after.core.recall([query(phase=Phase.STOPPING, agent="a", process="p1")])
        assert after.of().phase is Phase.STOPPED

    def test_its_own_pause_is_nobodys_silence(self) -> None:
        play = Play()
        run = play.run()
        play.now_s += 60
        play.tick()
        assert (play.of().phase, play.of().run) == (Phase.RUNNING, run.run)


# Written by hand: who has what, on which host and rack, and who is chosen.
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
    assert choose([Candidate(*each) for each in candidates], holdings, failed_on) == chosen


# -- both sides, in a world that loses messages and kills ----------------------------------------------


@dataclass
class Node:
    """An agent and the guards of what it runs, which live on when it is paused."""

    name: str
    process: int = 0
    #: What it runs, and when its guard was last told that all is well.
    running: dict[Key, float] = field(default_factory=dict)
    ended: dict[Key, int] = field(default_factory=dict)
    paused_until_s: float = 0.0
    next_beat_s: float = 0.0

    def guards(self, now_s: float) -> None:
        for key in [key for key, told_s in self.running.items() if now_s - told_s >= run_guard_patience_s]:
            del self.running[key]
            self.ended[key] = 137

    def told(self) -> AgentBeat:
        runs = [RunReport(*key) for key in self.running]
        return beat(
            self.name,
            *runs,
            *(RunReport(*key, ended=True, status=status) for key, status in self.ended.items()),
            process=str(self.process),
        )

    def obey(self, now_s: float, orders: list[RunOrder]) -> None:
        for key in self.running:
            self.running[key] = now_s
        steps = reconcile(self.running, self.ended, orders)
        for key in steps.stop:
            del self.running[key]
            self.ended[key] = 143
        for key in steps.forget:
            del self.ended[key]
        for order in steps.start:
            self.running[key_of(order)] = now_s


@pytest.mark.parametrize("seed", seeds(25))
def test_never_more_than_one_run_of_a_query_whatever_is_lost_and_killed(seed: int) -> None:
    """Without any fence, as long as no node is paused with all that runs on it."""
    rng = Random(seed)
    now_s, begun = 1000.0, 0
    core = Supervision(now_s)
    names = ["q0", "q1"]
    for name in names:
        core.register(now_s, query(name, restarts_max=10_000))
    durable = [core.queries[name].record for name in names]
    nodes = [Node(name) for name in "abc"]
    cut: dict[str, float] = {}
    coordinator_is_back_s = 0.0
    started = set[Key]()
    while now_s < 1000.0 + 400:
        now_s += 0.25
        if rng.random() < 0.005:
            coordinator_is_back_s = now_s + rng.uniform(0.5, 20)
            core = Supervision(coordinator_is_back_s)
            core.recall(durable)
        up = now_s >= coordinator_is_back_s
        if up:
            core.tick(now_s)
            for record in core.due(now_s):
                if core.place(now_s, record.name, Holdings()) is not None:
                    begun += 1
                    core.begun(now_s, record.name, f"1-{begun}", "")
            durable = [core.queries[name].record for name in names]
        for node in nodes:
            fate = rng.random()
            if fate < 0.003:  # the agent is killed, and what it ran with it; another is started soon
                node.process += 1
                node.running.clear()
                node.ended.clear()
                node.paused_until_s = now_s + rng.uniform(3, 40)
            elif fate < 0.006:
                node.paused_until_s = now_s + rng.uniform(1, 40)
            elif fate < 0.01:
                cut[node.name] = now_s + rng.uniform(1, 40)
            elif fate < 0.02 and node.running:  # a driver dies
                key = rng.choice(sorted(node.running))
                del node.running[key]
                node.ended[key] = 1
            node.guards(now_s)
            if now_s < node.paused_until_s or now_s < node.next_beat_s:
                continue
            node.next_beat_s = now_s + agent_beat_interval_s
            if not up or now_s < cut.get(node.name, 0) or rng.random() < 0.05:
                continue
            try:
                core.heard(now_s, node.told())
            except NodeIdTaken:
                continue
            orders = core.orders(node.name)
            durable = [core.queries[name].record for name in names]
            if rng.random() < 0.05:
                continue  # the answer is lost
            node.obey(now_s, orders)
            started |= set(node.running)
        for name in names:
            live = [(node.name, key) for node in nodes for key in node.running if key[0] == name]
            assert len(live) <= 1, f"seed {seed}, {now_s}: {live}"
    assert {name for name, _run in started} == set(names)
    assert len(started) > len(names), "nothing was ever recovered: the world was too kind"


def test_what_an_agent_runs_is_gone_before_it_is_taken_for_dead() -> None:
    assert run_guard_patience_s + agent_answer_timeout_s < agent_dead_after_s
