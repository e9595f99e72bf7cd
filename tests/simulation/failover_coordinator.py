"""A coordinator with a journal in the simulated world: the service's `Failover`, `Door` and `Assembly`.

The store and the journal survive crashes. A fault of the store, or a new leader, ends the coordinator's process.
It restarts shortly afterwards, as under a process supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import apsw
from simulation.client_requests import ListNames, OnLink, Open, Stat
from simulation.simulated_coordinator import SimulatedCoordinator, sleep
from simulation.writer_thread import raise_failed_check

from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.failover.service import Failover
from peacefs.coordinator.journal.memory import Mishap
from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.metadata.epochs import Begun
from peacefs.coordinator.metadata.journal_chain import Touched
from peacefs.coordinator.metadata.sqlite.image import ImageWriter
from peacefs.coordinator.metadata.sqlite.memory_image import MemoryImage
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.coordinator.rpc.dispatch import CALLS_OF_CLIENTS, is_read
from peacefs.coordinator.scheduling.policies import POLICY_DEFAULT
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Failure, Message

if TYPE_CHECKING:
    from simulation.failover_world import FailoverWorld

T = TypeVar("T")
#: The name of the journal's node, used when links to the journal are cut.
JOURNAL = "journal"
_STREAMS_PER_NODE = 2
_RESTARTED_AFTER_S = (0.3, 4.0)


class Killed(Exception):
    """Ends a process in the middle of a commit."""


class FailoverCoordinator(SimulatedCoordinator):
    """One of several coordinators. It is also the node that its failover controls."""

    def __init__(self, story: FailoverWorld, name: str) -> None:
        self.story = story
        self._waited_s = 0.0
        self._dies_next = False
        self.failover: Failover
        self.door: Door
        super().__init__(story.world, POLICY_DEFAULT, _STREAMS_PER_NODE, name=name)

    def start(self) -> None:
        """Start with the store of the last crash. Entries that it lacks come from the journal."""
        self.leadership = self.story.leadership_class(lambda: self.world.now_s, Member(self.name))
        self.door = Door(self.leadership, lambda: self.world.now_s, sleep, leader_lives=self._leader_lives)
        self.log.before = self._die_in_between
        self.datanodes = self.story.datanodes_by_name
        super().start()
        self.world.spawn(self.node, "following the journal", self._keep(), is_vital=True)

    def new_image(self) -> apsw.Connection:
        return store_in_memory(cluster_id="one").image

    def open_metadata(self, keeper: Callable[[ImageWriter], MemoryImage]) -> MetadataInMemory:
        story, world = self.story, self.world
        journal = story.journal_class(
            story.server, self._mishap, lambda arrive: world.later(world.random.uniform(0.01, 4.0), arrive)
        )
        self._journal_writer = story.writer_class(
            journal, clock=lambda: world.now_s + self._waited_s, pause=self._try_again
        )
        metadata = MetadataInMemory(self.image, self.log, self._journal_writer, keeper)
        self.failover = story.failover_class(
            self._journal_writer,
            metadata,
            self.leadership,
            self,
            run=self._run,
            sleep=sleep,
            on_replaced=self._replaced,
        )
        return metadata

    def reaches_journal(self) -> bool:
        return self.world.network.carries(self.name, JOURNAL)

    def appended(self) -> None:
        super().appended()
        self.story.check_store(self)

    # -- faults --------------------------------------------------------------------------------------

    def _mishap(self, call: str) -> Mishap:
        """Draw the fault of a call to the journal."""
        world, network = self.world, self.world.network
        if call != "append":
            self._waited_s = 0.0
        elif self._dies_next:
            self._dies_next = False
            raise Killed
        is_mended = world.now_s + self._waited_s >= self.story.journal_mended_s
        if not is_mended and not network.carries(self.name, JOURNAL):
            return Mishap.LOST
        if not is_mended and not network.carries(JOURNAL, self.name):
            return Mishap.ANSWER_LOST
        if not self.story.is_hostile:
            return Mishap.NONE
        if call == "append" and world.random.random() < 0.003:
            # Die before the entry reaches the journal, or after that but before anybody has the answer.
            self._dies_next = True
            return world.random.choice((Mishap.LOST, Mishap.ANSWER_LOST))
        fates = (Mishap.LOST, Mishap.ANSWER_LOST, Mishap.LATE)
        return world.random.choice(fates) if world.random.random() < 0.03 else Mishap.NONE

    def _die_in_between(self) -> None:
        """Sometimes die when an entry is in the journal but not yet in the local log."""
        if self.story.is_hostile and self.world.random.random() < 0.001:
            raise Killed

    def _try_again(self, seconds: float) -> None:
        """Count the time that the writer's thread would wait. No simulated time passes."""
        self._waited_s += 0.25

    def fail(self, fault: BaseException) -> NoReturn:
        self.die()
        raise MetadataFault(str(fault))

    def _replaced(self, why: str) -> NoReturn:
        self.fail(MetadataFault(why))

    def die(self) -> None:
        """Kill the process at once, and restart it later."""
        if not self.node.up:
            return
        self.crash()
        self.leadership.leads = False
        self.story.died(self)
        self.world.later(self.world.random.uniform(*_RESTARTED_AFTER_S), self.start)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run blocking work as on another thread: the event loop continues meanwhile."""
        await sleep(self.world.random.uniform(0.0, 0.01))
        done = work()
        await sleep(self.world.random.uniform(0.0, 0.01))
        return done

    async def _leader_lives(self) -> bool:
        leader = self.leadership.leader
        return leader is not None and self.world.nodes[leader.name].up

    # -- the same steps as in the service ------------------------------------------------------------

    def tasks(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        return self.parts.background.of_any()

    async def _keep(self) -> None:
        try:
            await self.failover.keep()
        except (MetadataFault, Killed) as fault:
            raise_failed_check(fault)
            self.die()

    async def answer(self, caller: str, message: Message) -> Message:
        if isinstance(message, OnLink):
            return await super().answer(caller, message)
        only_looks = isinstance(message, Open | Stat | ListNames) or (
            type(message) in CALLS_OF_CLIENTS and is_read(message)
        )
        try:
            await self.door.pass_through()
            reply = await super().answer(caller, message)
            refusal = self.door.refusal(is_read=only_looks)
            if refusal is not None:
                raise refusal
            return reply
        except PeacefsError as error:
            return Failure(error.code, error.message)

    # -- the interface for its failover ----------------------------------------------------------------

    def changed(self, touched: Touched) -> None:
        self.parts.changed_elsewhere(touched)

    def tick(self) -> None:
        self.parts.stand_by()

    @property
    def is_warm(self) -> bool:
        return self.parts.core.cluster.is_loaded

    def lead(self, begun: Begun) -> None:
        self.story.led.append((self.name, begun.epoch))
        self.parts.lead(begun)
        self.run(self.parts.background.of_leader())
