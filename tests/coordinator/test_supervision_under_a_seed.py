"""Supervised queries, seen from coordinator and agents, in a simulation that loses messages, kills and pauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from simulation.seeds import seeds
from support.supervised import beat, query

from peacefs.coordinator.supervision.core import Supervision, agent_dead_after_s
from peacefs.coordinator.supervision.locality import Holdings
from peacefs.protocol.errors import NodeIdTaken
from peacefs.protocol.messages import AgentBeat, RunOrder, RunReport
from peacefs.spark_connector.supervision.agent import agent_answer_timeout_s, agent_beat_interval_s
from peacefs.spark_connector.supervision.reconciliation import Key, key_of, reconcile, standby_of
from peacefs.spark_connector.supervision.run_guard import run_guard_timeout_s

_STEP_S = 0.25
#: How long a standby takes to start its session.
_SESSION_S = 4.0


@dataclass
class Node:
    """An agent and the guards of its runs, which live on while the agent is paused."""

    name: str
    process: int = 0
    #: Its runs, and when the agent last confirmed each to its guard.
    running: dict[Key, float] = field(default_factory=dict)
    ended: dict[Key, int] = field(default_factory=dict)
    #: Running processes without a run, and since when.
    standing_by: dict[Key, float] = field(default_factory=dict)
    paused_until_s: float = 0.0
    next_beat_s: float = 0.0

    def guards(self, now_s: float) -> None:
        for key in [key for key, told_s in self.running.items() if now_s - told_s >= run_guard_timeout_s]:
            self.end(key, 137)

    def end(self, key: Key, status: int) -> None:
        del self.running[key]
        self.standing_by.pop(key, None)
        self.ended[key] = status

    @property
    def drivers(self) -> list[Key]:
        """Return the running processes that may write."""
        return [key for key in self.running if key not in self.standing_by]

    def told(self, now_s: float) -> AgentBeat:
        ready = {key for key, since_s in self.standing_by.items() if now_s - since_s >= _SESSION_S}
        runs = [RunReport(*key, is_ready=key in ready) for key in self.running]
        return beat(
            self.name,
            *runs,
            *(RunReport(*key, ended=True, status=status) for key, status in self.ended.items()),
            process=str(self.process),
        )

    def obey(self, now_s: float, orders: list[RunOrder]) -> None:
        for key in self.running:
            self.running[key] = now_s
        steps = reconcile(self.running, self.ended, orders, self.standing_by)
        for order in steps.take_over:
            del self.standing_by[standby_of(order)]
            self.running[key_of(order)] = self.running.pop(standby_of(order))
        for key in steps.stop:
            self.end(key, 143)
        for key in steps.forget:
            del self.ended[key]
        for order in steps.start:
            self.running[key_of(order)] = now_s
            if order.standby:
                self.standing_by[key_of(order)] = now_s


class World:
    """A coordinator and three nodes, with faults from a seed."""

    def __init__(self, rng: Random, names: list[str], *, standbys: bool) -> None:
        self.names = names
        self.now_s = 1000.0
        self.nodes = [Node(name) for name in "abc"]
        self.started = set[Key]()
        self._rng = rng
        self._core = Supervision(self.now_s)
        for name in names:
            self._core.register(self.now_s, query(name, restarts_max=10_000, has_standby=standbys))
        self._commit()
        self._begun = 0
        self._taken_over_before = 0
        self._back_s = 0.0
        #: The time until which a node's messages are lost.
        self._cut: dict[str, float] = {}

    def step(self) -> None:
        self.now_s += _STEP_S
        if self._rng.random() < 0.005:
            self._restart_coordinator()
        if self._is_up:
            self._place_what_is_due()
        for node in self.nodes:
            self._strike(node)
            node.guards(self.now_s)
            if self.now_s >= max(node.paused_until_s, node.next_beat_s):
                node.next_beat_s = self.now_s + agent_beat_interval_s
                self._beat(node)

    @property
    def taken_over(self) -> int:
        """Return the number of runs that standbys have taken over."""
        return self._taken_over_before + self._core.taken_over_total

    @property
    def _is_up(self) -> bool:
        return self.now_s >= self._back_s

    def _commit(self) -> None:
        self._durable = [self._core.queries[name].record for name in self.names]

    def _restart_coordinator(self) -> None:
        self._back_s = self.now_s + self._rng.uniform(0.5, 20)
        self._taken_over_before += self._core.taken_over_total
        self._core = Supervision(self._back_s)
        self._core.recall(self._durable)

    def _place_what_is_due(self) -> None:
        self._core.tick(self.now_s)
        for record in self._core.due(self.now_s):
            if self._core.place(self.now_s, record.name, Holdings()) is not None:
                self._begun += 1
                self._core.begun(self.now_s, record.name, f"1-{self._begun}", "")
        for record in self._core.without_standby(self.now_s):
            self._begun += 1
            self._core.stand_by(record.name, f"1-{self._begun}", "", Holdings())
        self._commit()

    def _strike(self, node: Node) -> None:
        rng, fate = self._rng, self._rng.random()
        if fate < 0.003:  # the agent and its runs are killed; another agent starts soon
            node.process += 1
            node.running.clear()
            node.standing_by.clear()
            node.ended.clear()
            node.paused_until_s = self.now_s + rng.uniform(3, 40)
        elif fate < 0.006:
            node.paused_until_s = self.now_s + rng.uniform(1, 40)
        elif fate < 0.01:
            self._cut[node.name] = self.now_s + rng.uniform(1, 40)
        elif fate < 0.02 and node.running:  # a driver dies
            node.end(rng.choice(sorted(node.running)), 1)

    def _beat(self, node: Node) -> None:
        if not self._is_up or self.now_s < self._cut.get(node.name, 0) or self._rng.random() < 0.05:
            return
        try:
            self._core.heard(self.now_s, node.told(self.now_s))
        except NodeIdTaken:
            return
        orders = self._core.orders(node.name)
        self._commit()
        if self._rng.random() < 0.05:
            return  # the answer is lost
        node.obey(self.now_s, orders)
        self.started |= set(node.drivers)


@pytest.mark.parametrize("standbys", [False, True], ids=["alone", "with standbys"])
@pytest.mark.parametrize("seed", seeds(25))
@pytest.mark.evidence("query-node-dies")
def test_never_more_than_one_run_of_a_query_whatever_is_lost_and_killed(seed: int, standbys: bool) -> None:
    """This holds without a fence, as long as no node is paused together with its runs."""
    world = World(Random(seed), ["q0", "q1"], standbys=standbys)
    while world.now_s < 1000.0 + 400:
        world.step()
        for name in world.names:
            live = [(node.name, key) for node in world.nodes for key in node.drivers if key[0] == name]
            assert len(live) <= 1, f"seed {seed}, {world.now_s}: {live}"
    assert {name for name, _run in world.started} == set(world.names)
    assert len(world.started) > len(world.names), "nothing was ever recovered: the world was too kind"
    assert standbys == bool(world.taken_over)


def test_runs_of_an_agent_are_gone_before_it_is_taken_for_dead() -> None:
    assert run_guard_timeout_s + agent_answer_timeout_s < agent_dead_after_s
