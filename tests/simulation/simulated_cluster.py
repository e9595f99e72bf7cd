"""A whole cluster in the simulated world, made of the real logic of all its parts."""

from __future__ import annotations

from random import Random
from typing import Any

from simulation.lying_datanode import LyingDatanode
from simulation.simulated_agent import Drivers, SimulatedAgent
from simulation.simulated_coordinator import SimulatedCoordinator
from simulation.simulated_datanode import SimulatedDatanode
from simulation.simulated_network import Network
from simulation.world import Node, Task, World

from peacefs.coordinator.scheduling.policies import POLICY_DEFAULT
from peacefs.protocol.limits import copy_bytes_per_second
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx


class SimulatedCluster:
    """A coordinator, datanodes in two racks, and clients."""

    def __init__(
        self,
        seed: int,
        *,
        datanodes: int = 4,
        lose: float = 0.0,
        network: Network | None = None,
        copy_rate: float = copy_bytes_per_second,
        policy: str = POLICY_DEFAULT,
        streams_per_node: int = 2,
        trash_minutes: int = 0,
        collect_temporary_hours: float | None = None,
    ) -> None:
        self.world = World(seed, network or Network(lose))
        self._only = SimulatedCoordinator(
            self.world, policy, streams_per_node, trash_minutes, collect_temporary_hours
        )
        for _ in range(datanodes):
            self.add_datanode(copy_rate)

    @property
    def coordinator(self) -> SimulatedCoordinator:
        """The cluster's only coordinator."""
        return self._only

    def add_datanode(self, copy_rate: float = copy_bytes_per_second) -> SimulatedDatanode:
        """Add an empty datanode. Datanodes alternate between the two racks."""
        number = len(self.coordinator.datanodes)
        name = f"dn-{number + 1}"
        datanode = SimulatedDatanode(self.world, name, f"/rack-{number % 2}", copy_rate)
        self.coordinator.datanodes[name] = datanode
        return datanode

    def add_liar(self) -> LyingDatanode:
        """Add a lying datanode, which claims the replicas of others. Datanodes alternate between the two racks."""
        number = len(self.coordinator.liars)
        name = f"liar-{number + 1}"
        liar = LyingDatanode(self.world, name, f"/rack-{number % 2}", self._all_replicas)
        self.coordinator.liars[name] = liar
        return liar

    def add_agent(self, name: str, drivers: Drivers, random: Random) -> SimulatedAgent:
        """Add an agent that may run every query. `drivers` records the drivers of all agents."""
        agent = self.coordinator.agents[name] = SimulatedAgent(self.world, name, drivers, random)
        return agent

    def _all_replicas(self) -> set[Replica]:
        return {replica for datanode in self.datanodes for replica in datanode.store.replicas()}

    @property
    def datanodes(self) -> list[SimulatedDatanode]:
        return list(self.coordinator.datanodes.values())

    def client(self, name: str) -> Node:
        return self.world.add_node(name)

    def start(self, node: Node, what: str, steps: fx.Steps[Any]) -> Task:
        return self.world.spawn(node, what, steps)

    def until_ready(self) -> None:
        alive = len(self.datanodes)
        assert self.world.run(
            lambda: (
                self.coordinator.cluster.ready(self.world.now_s)
                and len(self.coordinator.cluster.members.alive()) == alive
            ),
            limit_s=60.0,
        )

    def fully_replicated(self) -> bool:
        chunks = self.coordinator.cluster.chunks
        return not chunks.under and not chunks.missing and not chunks.over
