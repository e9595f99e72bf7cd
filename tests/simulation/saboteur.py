"""Fault injection for a simulated cluster, at times that the seed decides."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import DISKS
from simulation.simulated_network import Network
from simulation.world import Node

from peacefs.runtime import effects as fx

_HOUR_S = 3600.0


class Saboteur:
    """Crashes a random node from time to time, at any point of its work, and restarts it later."""

    def __init__(self, cluster: SimulatedCluster, random: Random, effects_between: int) -> None:
        self.cluster = cluster
        self.random = random
        self.effects_between = effects_between
        self.crashes = 0
        self._down = False
        self._budget = random.randrange(effects_between)
        cluster.world.before_effect = self._before_effect

    def rest(self) -> None:
        self.cluster.world.before_effect = lambda node, effect: None

    def _before_effect(self, node: Node, effect: fx.Effect) -> None:
        if self._down or node.name.startswith("client"):
            return
        self._budget -= 1
        if self._budget > 0:
            return
        self._budget = self.random.randrange(self.effects_between)
        self._down = True
        self.crashes += 1
        victim = self.cluster.coordinator.datanodes.get(node.name, self.cluster.coordinator)
        victim.crash()
        self.cluster.world.later(self.random.choice((0.5, 2.0, 5.0, 14.0)), self._back(victim.start))

    def _back(self, start: Callable[[], None]) -> Callable[[], None]:
        def come_back() -> None:
            start()
            self._down = False

        return come_back


class DiskBreaker:
    """Breaks a disk that no chunk depends on. It works again, with its data, when its datanode restarts."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.broken = 0
        self._is_over = False
        self._look_again()

    def rest(self) -> None:
        """Stop causing faults; broken disks stay broken until their datanode restarts."""
        self._is_over = True

    def _look_again(self) -> None:
        self._cluster.world.later(self._random.uniform(5.0, 60.0), self._look)

    def _look(self) -> None:
        if self._is_over:
            return
        victim = self._random.choice(self._cluster.datanodes)
        alive = len(self._cluster.coordinator.cluster.members.alive()) == len(self._cluster.datanodes)
        if alive and victim.node.up and self._cluster.fully_replicated():
            self.broken += 1
            victim.node.disk.break_down(self._random.choice(DISKS))
            generation = victim.node.generation

            def repaired() -> bool:
                return victim.node.generation != generation

            self._heal_when(repaired, victim.node)
        else:
            self._look_again()

    def _heal_when(self, condition: Callable[[], bool], node: Node) -> None:
        if condition():
            node.disk.heal()
            self._look_again()
        else:
            self._cluster.world.later(0.1, lambda: self._heal_when(condition, node))


class Separator:
    """Cuts the network between two nodes for a while. Both stay up, and each sees the other fall silent."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.cuts = 0
        self._cut_later(cluster.world.network)

    def _cut_later(self, network: Network) -> None:
        self._cluster.world.later(self._random.uniform(5.0, 60.0), lambda: self._cut(network))

    def _cut(self, network: Network) -> None:
        """Cut the two nodes off, until the world gets another network."""
        world = self._cluster.world
        if world.network is not network:
            return
        datanode = self._random.choice(self._cluster.datanodes).node.name
        other = self._random.choice([name for name in sorted(world.nodes) if name != datanode])
        network.separated.add(frozenset((datanode, other)))
        self.cuts += 1

        def mend() -> None:
            network.separated.clear()
            self._cut_later(network)

        world.later(self._random.choice((2.0, 6.0, 15.0, 30.0)), mend)


class ClockMover:
    """Sets the wall clocks of nodes forward and back, each independently."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._is_over = False
        self.jumps = 0
        self._move()

    def _move(self) -> None:
        if self._is_over:
            return
        node = self._random.choice(sorted(self._cluster.world.nodes.values(), key=lambda node: node.name))
        node.clock_ahead_s = self._random.choice(
            (0.0, 0.0, -1.0, 30.0, -_HOUR_S, _HOUR_S, -90 * _HOUR_S, 7 * _HOUR_S)
        )
        self.jumps += 1
        self._cluster.world.later(self._random.uniform(5.0, 120.0), self._move)

    def set_right(self) -> None:
        self._is_over = True
        for node in self._cluster.world.nodes.values():
            node.clock_ahead_s = 0.0


class MetadataFiller:
    """Fills the coordinator's disk from time to time: changes are refused until there is space again."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._is_over = False
        self.times = 0
        self._fill_later()

    def rest(self) -> None:
        self._is_over = True
        self._cluster.coordinator.make_room()

    def _fill_later(self) -> None:
        self._cluster.world.later(self._random.uniform(10.0, 90.0), self._fill)

    def _fill(self) -> None:
        if self._is_over:
            return
        self._cluster.coordinator.fill_disk()
        self.times += 1
        self._cluster.world.later(self._random.choice((0.5, 2.0, 10.0)), self._make_room)

    def _make_room(self) -> None:
        if not self._is_over:
            self._cluster.coordinator.make_room()
            self._fill_later()
