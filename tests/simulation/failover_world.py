"""Several coordinators that share a journal, datanodes with a link to each, and clients that know all addresses.

All of it is the real logic, as in `SimulatedCluster`. This module checks the invariants: epochs of entries never
decrease, stores are equal at equal entry numbers, and no order drops the last replica of a file's chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from journal.replicated_store import rows_of
from simulation.failover_coordinator import JOURNAL, FailoverCoordinator
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_coordinator import SimulatedCoordinator
from simulation.simulated_datanode import SimulatedDatanode
from simulation.simulated_network import Network
from simulation.world import World

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.failover.service import Failover
from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.datanode.control.obedience import Obedience
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import copy_bytes_per_second
from peacefs.protocol.messages import DeleteChunks, Message

#: Stores are compared at entries whose number is a multiple of this.
_COMPARED_EVERY = 4


class FailoverWorld(SimulatedCluster):
    """A world of several coordinators. Tests replace one of the service's classes to disable a mechanism."""

    def __init__(
        self,
        seed: int,
        *,
        coordinators: int = 2,
        datanodes: int = 4,
        network: Network | None = None,
        journal: type[JournalInMemory] = JournalInMemory,
        writer: type[JournalWriter] = JournalWriter,
        leadership: type[Leadership] = Leadership,
        failover: type[Failover] = Failover,
        obedience: type[Obedience] = Obedience,
    ) -> None:
        self.world = World(seed, network or Network())
        self.server = JournalServer(lambda: self.world.now_s)
        self.journal_class, self.writer_class = journal, writer
        self.leadership_class, self.failover_class = leadership, failover
        self._obedience_class = obedience
        self.is_hostile = False
        self.deaths = 0
        #: Time at which cut links to the journal work again, so that a waiting writer gets an answer.
        self.journal_mended_s = math.inf
        #: Each coordinator that has led, with its epoch.
        self.led: list[tuple[str, int]] = []
        self.datanodes_by_name: dict[str, SimulatedDatanode] = {}
        self._rows_at: dict[int, bytes] = {}
        self._epoch_at = (0, 0)
        self.coordinators = [FailoverCoordinator(self, f"coordinator-{at + 1}") for at in range(coordinators)]
        for _ in range(datanodes):
            self.add_datanode()

    @property
    def coordinator(self) -> SimulatedCoordinator:
        """The leader, or the first coordinator if none leads."""
        return self.leader or self.coordinators[0]

    @property
    def leader(self) -> FailoverCoordinator | None:
        """The leader, if it may answer."""
        return next((each for each in self.coordinators if each.node.up and each.leadership.may_answer), None)

    @property
    def datanodes(self) -> list[SimulatedDatanode]:
        return list(self.datanodes_by_name.values())

    def add_datanode(self, copy_rate: float = copy_bytes_per_second) -> SimulatedDatanode:
        number = len(self.datanodes_by_name)
        name = f"dn-{number + 1}"
        names = [each.name for each in self.coordinators]
        datanode = SimulatedDatanode(
            self.world, name, f"/rack-{number % 2}", copy_rate, names, self._obedience_class
        )
        datanode.dropped = lambda order: self._check_dropped(datanode, order)
        datanode.queue_s = self._queue_s
        self.datanodes_by_name[name] = datanode
        return datanode

    def _queue_s(self, order: Message) -> float:
        """Return how long an order waits in a datanode's queue: sometimes some seconds."""
        random = self.world.random
        return random.uniform(0.0, 6.0) if self.is_hostile and random.random() < 0.2 else 0.0

    # -- invariants ------------------------------------------------------------------------------------

    def died(self, coordinator: FailoverCoordinator) -> None:
        self.deaths += 1

    def check_store(self, coordinator: FailoverCoordinator) -> None:
        """Check a coordinator's store. Call it after each entry of its log."""
        number, epoch = self._epoch_at
        while (entry := self.server.entries.get(number + 1)) is not None:
            assert entry[0] >= epoch, f"entry {number + 1} of epoch {entry[0]} came after one of epoch {epoch}"
            number, epoch = number + 1, entry[0]
        self._epoch_at = number, epoch
        place = coordinator.log.meta("journal_number")
        if place % _COMPARED_EVERY == 0:
            rows = coordinator.log.digest()
            assert self._rows_at.setdefault(place, rows) == rows, f"two stores differ at entry {place}"

    def _check_dropped(self, datanode: SimulatedDatanode, order: DeleteChunks) -> None:
        newest = max((each.log for each in self.coordinators), key=lambda log: log.meta("journal_number"))
        for replica in order.replicas:
            record = newest.chunk(replica.chunk)
            if record is None or record.version != replica.version:
                continue
            holders = [
                each.node.name
                for each in self.datanodes
                if (held := each.store.find(replica.chunk)) is not None and held.version == record.version
            ]
            assert len(holders) >= record.replication, (
                f"{datanode.node.name} dropped a replica of {record}, and there are {holders}"
            )

    def is_settled(self) -> bool:
        """Return whether one coordinator leads and all others are up to date. Check the order of the journal."""
        numbers = sorted(self.server.entries)
        assert numbers == list(range(1, len(numbers) + 1))
        epochs = [self.server.entries[number][0] for number in numbers]
        assert epochs == sorted(epochs), "an entry of an older epoch came after one of a newer"
        rows = rows_of(self.coordinator.metadata)
        return sum(each.leadership.leads for each in self.coordinators) == 1 and all(
            rows_of(each.metadata) == rows for each in self.coordinators
        )


class FailoverSaboteur:
    """Kills and pauses coordinators, cuts links, crashes datanodes, and tells leaders to hand over."""

    def __init__(self, cluster: FailoverWorld, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._is_over = False
        #: The number of events of each kind.
        self.done: dict[str, int] = {}
        cluster.is_hostile = True
        self._act_later()

    def rest(self) -> None:
        """Stop causing faults, and restore all links."""
        self._is_over = True
        self._cluster.is_hostile = False
        network = self._cluster.world.network
        network.separated.clear()
        network.one_way.clear()
        network.lose = 0.0

    def _act_later(self) -> None:
        self._cluster.world.later(self._random.uniform(0.5, 8.0), self._act)

    def _act(self) -> None:
        if self._is_over:
            return
        acts: dict[str, Callable[[], None]] = {
            "kill the leader": self._kill_leader,
            "kill all": self._kill_all,
            "pause": self._pause,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "crash a datanode": self._crash_datanode,
            "hand over": self._hand_over,
        }
        name = self._random.choice([*acts, "pause", "cut one way"])
        self.done[name] = self.done.get(name, 0) + 1
        acts[name]()
        self._act_later()

    def _kill_leader(self) -> None:
        (self._cluster.leader or self._random.choice(self._cluster.coordinators)).die()

    def _kill_all(self) -> None:
        for each in self._cluster.coordinators:
            each.die()

    def _pause(self) -> None:
        """Pause a process for less or more than its lease; mostly the leader."""
        world = self._cluster.world
        victim = self._cluster.leader or self._random.choice(self._cluster.coordinators)
        if self._random.random() < 0.3:
            victim = self._random.choice(self._cluster.coordinators)
        victim.node.paused_until_s = world.now_s + self._random.uniform(0.5, 8.0)

    def _ends(self) -> tuple[str, str]:
        """Choose the ends of a link: a coordinator, and the journal or a datanode."""
        one = self._random.choice(self._cluster.coordinators).name
        return one, self._random.choice([JOURNAL, JOURNAL, *self._cluster.datanodes_by_name])

    def _cut(self) -> None:
        link = frozenset(self._ends())
        self._cluster.world.network.separated.add(link)
        self._mend_later(lambda: self._cluster.world.network.separated.discard(link))

    def _cut_one_way(self) -> None:
        one, other = self._ends()
        link = (one, other) if self._random.random() < 0.5 else (other, one)
        self._cluster.world.network.one_way.add(link)
        self._mend_later(lambda: self._cluster.world.network.one_way.discard(link))

    def _mend_later(self, mend: Callable[[], None]) -> None:
        world = self._cluster.world
        after_s = self._random.uniform(0.5, 10.0)
        self._cluster.journal_mended_s = world.now_s + after_s
        world.later(after_s, mend)

    def _crash_datanode(self) -> None:
        up = [each for each in self._cluster.datanodes if each.node.up]
        if len(up) < len(self._cluster.datanodes):
            return
        victim = self._random.choice(up)
        victim.crash()
        self._cluster.world.later(self._random.choice((0.5, 2.0, 5.0, 14.0)), victim.start)

    def _hand_over(self) -> None:
        leader = self._cluster.leader
        if leader is not None:
            self._cluster.world.spawn(leader.node, "handing over", self._hand_over_from(leader))

    async def _hand_over_from(self, leader: FailoverCoordinator) -> None:
        try:
            await leader.failover.hand_over()
        except PeacefsError:
            return
        leader.die()
