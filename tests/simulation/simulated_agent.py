"""An agent of the simulated world and the drivers that it starts, which write to their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from simulation.client_requests import OnLink
from simulation.client_steps import write
from simulation.world import Node, World

from peacefs.protocol.errors import PeacefsError, RunSuperseded
from peacefs.protocol.messages import (
    AgentBeat,
    AgentCommand,
    AgentOrders,
    Message,
    RunOrder,
    RunReport,
)
from peacefs.runtime import effects as fx
from peacefs.spark_connector.supervision.agent import agent_answer_timeout_s, agent_beat_interval_s
from peacefs.spark_connector.supervision.reconciliation import Key, key_of, reconcile, standby_of
from peacefs.spark_connector.supervision.run_guard import run_guard_timeout_s

COMMAND = "count"
_RUNS_MAX = 4
_GUARD_LOOK_S = 0.25
_KILLED = 137
_FENCED = 1
#: Time until the session of a standby is ready.
_SESSION_S = 3.0


@dataclass(eq=False)
class Driver:
    """A process that runs a query or stands by. It has its own node, so that it can be killed alone."""

    order: RunOrder
    node: Node
    since_s: float
    #: Time when its guard last got a good answer.
    told_s: float
    #: The batches whose commit was acknowledged to it.
    committed: int = 0


class Drivers:
    """All live drivers of all agents. Each query has at most one."""

    def __init__(self) -> None:
        self._living: dict[str, Driver] = {}
        #: The number of committed batches of every run that was ever started.
        self.ever: dict[Key, Driver] = {}

    def started(self, driver: Driver) -> None:
        other = self._living.setdefault(driver.order.query, driver)
        assert other is driver, f"{driver.order} begins while {other.order} lives"
        self.ever[key_of(driver.order)] = driver

    def ended(self, driver: Driver) -> None:
        del self._living[driver.order.query]

    def of(self, query: str) -> Driver | None:
        return self._living.get(query)


class SimulatedAgent:
    """An agent's node: it sends heartbeats, guards its drivers, and dies together with them."""

    def __init__(self, world: World, name: str, drivers: Drivers, random: Random) -> None:
        self.world = world
        self.node = world.add_node(name)
        self._drivers = drivers
        self._random = random
        self._running: dict[Key, Driver] = {}
        self._ended: dict[Key, int] = {}
        self.start()

    def start(self) -> None:
        self.world.restart(self.node)
        self._process = f"{self.node.name}-{self.node.generation}"
        self.world.spawn(self.node, "beating", self._keep_beating())
        self.world.spawn(self.node, "guarding", self._keep_guarding())

    def crash(self) -> None:
        """Crash the agent and all its drivers."""
        for key in list(self._running):
            self._kill(key, _KILLED)
        self._ended.clear()
        self.world.crash(self.node)

    def kill_one(self) -> bool:
        """Kill a random driver, if there is one."""
        if self._running:
            self._kill(self._random.choice(sorted(self._running)), _KILLED)
        return bool(self._ended)

    def order(self, order: Message, answered: Callable[[Message], None]) -> None:
        raise AssertionError(f"agents are ordered nothing: {order}")

    def _kill(self, key: Key, status: int) -> None:
        driver = self._running.pop(key)
        self._ended[key] = status
        if not driver.order.standby:
            self._drivers.ended(driver)
        self.world.crash(driver.node)
        del self.world.nodes[driver.node.name]

    def _keep_guarding(self) -> fx.Steps[None]:
        while True:
            yield from fx.sleep(_GUARD_LOOK_S)
            for key, driver in list(self._running.items()):
                if self.world.now_s - driver.told_s >= run_guard_timeout_s:
                    self._kill(key, _KILLED)

    def _keep_beating(self) -> fx.Steps[None]:
        link = ""
        while True:
            link = link or f"{self.node.name}-{self.world.now_s}"
            try:
                orders = yield from fx.call(
                    OnLink(link, self._beat()), AgentOrders, timeout_s=agent_answer_timeout_s
                )
            except PeacefsError:
                link = ""
            else:
                self._obey(orders.runs)
            yield from fx.sleep(agent_beat_interval_s)

    def _beat(self) -> AgentBeat:
        runs = [RunReport(*key, is_ready=self._is_ready(driver)) for key, driver in self._running.items()]
        runs += [RunReport(*key, ended=True, status=status) for key, status in self._ended.items()]
        commands = [AgentCommand(COMMAND, ["simulated"], extra_arguments=False)]
        return AgentBeat(self.node.name, self._process, self.node.name, "", commands, _RUNS_MAX, runs)

    def _is_ready(self, driver: Driver) -> bool:
        return driver.order.standby and self.world.now_s - driver.since_s >= _SESSION_S

    def _obey(self, orders: list[RunOrder]) -> None:
        for driver in self._running.values():
            driver.told_s = self.world.now_s
        standing_by = [key for key, driver in self._running.items() if driver.order.standby]
        steps = reconcile(self._running, self._ended, orders, standing_by)
        for order in steps.take_over:
            driver = self._running[key_of(order)] = self._running.pop(standby_of(order))
            driver.order = order
            self._begin(driver)
        for key in steps.stop:
            self._kill(key, _KILLED)
        for key in steps.forget:
            del self._ended[key]
        for order in steps.start:
            node = self.world.add_node(f"client-driver-{order.run}")
            driver = self._running[key_of(order)] = Driver(order, node, self.world.now_s, self.world.now_s)
            if not order.standby:
                self._begin(driver)

    def _begin(self, driver: Driver) -> None:
        self._drivers.started(driver)
        self.world.spawn(driver.node, f"run {driver.order.run}", self._drive(driver))

    def _drive(self, driver: Driver) -> fx.Steps[None]:
        """Commit one batch after another, each as a file in the checkpoint. End when another run has begun."""
        while True:
            path = f"{driver.order.location}/{driver.order.run}-{driver.committed}"
            try:
                yield from write(path, batch(driver.order.run, driver.committed), path)
                driver.committed += 1
            except RunSuperseded:
                self._kill(key_of(driver.order), _FENCED)
            except PeacefsError:
                pass
            yield from fx.sleep(self._random.uniform(0.5, 5.0))


def batch(run: str, number: int) -> bytes:
    """Return the contents of a batch."""
    return f"{run}/{number}".encode() * 100
