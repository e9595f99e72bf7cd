"""Supervised queries in the whole cluster, while coordinator, datanodes, agents and drivers crash."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from simulation.client_steps import read
from simulation.hostility import hostile_network, let_calm_down
from simulation.saboteur import MetadataFiller, Saboteur
from simulation.seeds import seeds
from simulation.simulated_agent import COMMAND, Drivers, SimulatedAgent, batch
from simulation.simulated_cluster import SimulatedCluster
from support.long_runs import often

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.supervision.core import agent_dead_after_s, supervised_backoff_max_s
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import supervised_restarts_max
from peacefs.runtime import effects as fx

_QUERIES = ("orders", "logins")
_WITH_STANDBYS = ("logins",)
_HOSTILE_S = 30.0 * often(4, 10)


def supervise(cluster: SimulatedCluster, name: str) -> None:
    record = QueryRecord(
        *(name, "simulated", False, (COMMAND,), f"/queries/{name}", (), supervised_restarts_max),
        has_standby=name in _WITH_STANDBYS,
    )
    registering = cluster.world.spawn(
        cluster.coordinator.node, "supervise", cluster.coordinator.parts.supervising.register(record)
    )
    cluster.world.run_task(registering, limit_s=10.0)


class Mishaps:
    """Crashes agents with all their drivers, at least one agent in each run, and kills single drivers."""

    def __init__(self, cluster: SimulatedCluster, agents: list[SimulatedAgent], random: Random) -> None:
        self._world = cluster.world
        self._agents = agents
        self._random = random
        self._is_over = False
        self.crashes = 0
        self.deaths = 0
        self._happen_later()

    def rest(self) -> None:
        self._is_over = True

    def _happen_later(self) -> None:
        self._world.later(self._random.uniform(5.0, 30.0), self._happen)

    def _happen(self) -> None:
        if self._is_over:
            return
        agent = self._random.choice(self._agents)
        if agent.node.up and (self._random.random() < 0.5 or not self.crashes):
            agent.crash()
            self.crashes += 1
            self._world.later(self._random.uniform(0.5, 2 * agent_dead_after_s), agent.start)
        elif agent.node.up:
            self.deaths += agent.kill_one()
        self._happen_later()


@pytest.mark.parametrize("seed", seeds(4))
def test_supervised_query_has_one_driver_at_a_time_and_goes_on_after_every_fault(seed: int) -> None:
    """Batches that were acknowledged to a driver can be read afterwards, whichever run wrote them."""
    print(f"seed {seed}")
    cluster, random = SimulatedCluster(seed), Random(seed)
    world = cluster.world
    cluster.until_ready()
    drivers = Drivers()
    agents = [cluster.add_agent(f"client-agent-{number}", drivers, random) for number in range(3)]
    for name in _QUERIES:
        supervise(cluster, name)
    assert world.run(lambda: all(drivers.of(name) for name in _QUERIES), limit_s=30.0), "they do not begin"
    world.network = hostile_network()
    saboteur, mishaps = Saboteur(cluster, random, effects_between=1500), Mishaps(cluster, agents, random)
    filler = MetadataFiller(cluster, random)
    world.run(lambda: False, limit_s=_HOSTILE_S)
    saboteur.rest()
    filler.rest()
    mishaps.rest()
    let_calm_down(cluster)
    assert world.run(lambda: all(drivers.of(name) for name in _QUERIES), limit_s=2 * supervised_backoff_max_s), (
        "a query is not taken up again"
    )
    for name in _QUERIES:
        assert world.run(_goes_on(drivers, name), limit_s=60.0), f"{name} makes no progress"
    reader = cluster.client("client-reader")
    for (name, run), driver in drivers.ever.items():
        for number in range(driver.committed):
            path = f"/queries/{name}/{run}-{number}"
            found = world.run_task(cluster.start(reader, path, _read_patiently(path)), limit_s=60.0)
            assert found == batch(run, number)
    runs = len(drivers.ever)
    assert saboteur.crashes >= 3 and mishaps.crashes and runs > len(_QUERIES)
    print(f"{runs} runs, {saboteur.crashes} crashes, {mishaps.crashes} of agents, {mishaps.deaths} deaths")


def _goes_on(drivers: Drivers, name: str) -> Callable[[], bool]:
    driver = drivers.of(name)
    assert driver is not None
    before = driver.committed
    return lambda: driver.committed > before + 2


def _read_patiently(path: str) -> fx.Steps[bytes]:
    for _ in range(5):
        try:
            return (yield from read(path))
        except PeacefsError:
            yield from fx.sleep(1.0)
    return (yield from read(path))
