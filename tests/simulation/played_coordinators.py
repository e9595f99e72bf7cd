"""Coordinators that share a journal, in the simulated world, with names only. Runs are fast.

Each is the real `Failover` over the real store in memory; its clients make and list directories. Invariants are
checked at every entry and every answer. `failover_world.py` includes datanodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NoReturn, TypeVar

from journal.replicated_store import rows_of
from simulation.durable_log import DurableLog
from simulation.late_image import LateImage
from simulation.simulated_coordinator import sleep
from simulation.simulated_network import Network
from simulation.world import World
from simulation.writer_thread import SimulatedCommits, WriterThread, raise_failed_check

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.failover.service import Failover
from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer, Mishap
from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.epochs import Begun
from peacefs.coordinator.metadata.journal_chain import Touched
from peacefs.coordinator.metadata.model import ROOT
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import PeacefsError

T = TypeVar("T")
_PLAYED_S = 40.0
_SETTLED_S = 30.0
_QUIET_S = 2.0
#: Number of clients that change names at once, so that one entry contains several changes.
_CLIENTS = 2
#: Maximum pause before the image is written.
_IMAGE_PAUSE_S = 3.0


class Killed(Exception):
    """Ends a process in the middle of a commit."""


class Story:
    """The world, its journal, and its coordinators. `acknowledged` has the names that were made."""

    def __init__(
        self,
        seed: int,
        coordinators: int,
        journal: type[JournalInMemory] = JournalInMemory,
        leadership: type[Leadership] = Leadership,
    ) -> None:
        self.world = World(seed, Network())
        self.random = self.world.random
        self.server = JournalServer(lambda: self.world.now_s)
        self.journal_class, self.leadership_class = journal, leadership
        self.acknowledged: set[str] = set()
        #: The names at each entry number, as in the first coordinator that reached it.
        self.states: dict[int, frozenset[str]] = {}
        self.is_hostile = True
        self.is_quiet = False
        self.led: list[str] = []
        self.handed_over = 0
        self.coordinators = [PlayedCoordinator(self, f"c-{at}") for at in range(coordinators)]

    def play(self) -> None:
        self.world.run(lambda: False, limit_s=_PLAYED_S)
        self.is_hostile = False
        self.world.run(lambda: False, limit_s=_SETTLED_S)
        # A standby may lag a little; once nothing changes any more, it must have everything.
        self.is_quiet = True
        self.world.run(lambda: False, limit_s=_QUIET_S)
        leaders = [each for each in self.coordinators if each.leadership.leads]
        assert len(leaders) == 1, [each.name for each in leaders]
        rows = rows_of(leaders[0].metadata)
        for each in self.coordinators:
            assert each.names() >= self.acknowledged, f"{each.name} lacks what was acknowledged"
            assert each.failover.standings.lag == 0
            assert rows_of(each.metadata) == rows, each.name
        assert self.acknowledged

    def settle(self) -> PlayedCoordinator:
        """End all faults. Return the leader as soon as it has a standby that can take over."""
        self.is_hostile = False
        self.is_quiet = True
        assert self.world.run(lambda: any(each.successor() for each in self.coordinators), limit_s=60.0)
        return next(each for each in self.coordinators if each.leadership.leads)

    def check(self, log: DurableLog) -> None:
        """Check a coordinator's rows. Call it after each entry of its log."""
        epochs = [self.server.entries[number][0] for number in sorted(self.server.entries)]
        assert epochs == sorted(epochs), "an entry of an older epoch came after one of a newer"
        number, names = log.meta("journal_number"), frozenset(log.names_in(ROOT))
        assert self.states.setdefault(number, names) == names, f"two stores differ at entry {number}"


class PlayedCoordinator:
    """A coordinator's node, whose store survives its crashes. It is also the node that its failover controls."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.name = story, name
        self.node = story.world.add_node(name)
        self._image = store_in_memory(cluster_id="one").image
        self._log = DurableLog(self._image)
        self._log.before = self._die_in_between
        self._log.appended = lambda: story.check(self._log)
        self._silent_until_s = 0.0
        self._made = 0
        self.metadata: MetadataInMemory
        self.leadership: Leadership
        self.failover: Failover
        self.start()

    def start(self) -> None:
        story, world = self.story, self.story.world
        world.restart(self.node)
        journal = story.journal_class(
            story.server, self._mishap, lambda arrive: world.later(self._late_s(), arrive)
        )
        self._tries = 0.0
        writer = JournalWriter(journal, clock=lambda: self._tries, pause=self._try_again)
        image = partial(LateImage, random=Random(story.random.random()))
        self.metadata = MetadataInMemory(self._image, self._log, writer, image)
        self._log.check_found(self.metadata)
        self._thread = WriterThread(world, self.node, Random(story.random.random()))
        self._commits = SimulatedCommits(self.metadata, self._log, self._thread, self._failed)
        self.leadership = story.leadership_class(lambda: world.now_s, Member(self.name))
        self.failover = Failover(
            writer,
            self.metadata,
            self.leadership,
            self,
            run=self._run,
            sleep=self._sleep,
            on_replaced=self._replaced,
            kept_bytes=1 << 20,
        )
        world.spawn(self.node, "following", self._keep(), is_vital=True)
        for _ in range(_CLIENTS):
            world.spawn(self.node, "a client", self._work(), is_vital=True)
        self._keep_image()

    # -- faults --------------------------------------------------------------------------------------

    def _die_in_between(self) -> None:
        """Sometimes die when an entry is in the journal but not yet in the local log."""
        if self.story.is_hostile and self.story.random.random() < 0.002:
            raise Killed

    def _failed(self, fault: MetadataFault) -> None:
        self._die()

    def _keep_image(self) -> None:
        self._commits.tend()
        self._thread.later(self.story.random.uniform(0.0, _IMAGE_PAUSE_S), self._keep_image)

    def _mishap(self, call: str) -> Mishap:
        random = self.story.random
        if not self.story.is_hostile:
            return Mishap.NONE
        if self.story.world.now_s < self._silent_until_s:
            return Mishap.LOST
        if random.random() < 0.004:
            self._silent_until_s = self.story.world.now_s + random.uniform(0.5, 6.0)
        if call == "append" and random.random() < 0.004:
            raise Killed
        fates = [Mishap.LOST, Mishap.ANSWER_LOST, Mishap.LATE]
        return random.choice(fates) if random.random() < 0.05 else Mishap.NONE

    def _late_s(self) -> float:
        return self.story.random.uniform(0.01, 4.0)

    def _try_again(self, seconds: float) -> None:
        self._tries += 1.0

    async def _sleep(self, seconds: float) -> None:
        """Let time pass. Sometimes pause the whole process as well."""
        story = self.story
        if story.is_hostile and story.random.random() < 0.002:
            self.node.paused_until_s = story.world.now_s + story.random.uniform(1.0, 8.0)
        await sleep(seconds)

    async def _run(self, work: Callable[[], T]) -> T:
        await self._sleep(self.story.random.uniform(0.0, 0.01))
        done = work()
        await self._sleep(self.story.random.uniform(0.0, 0.01))
        return done

    def _replaced(self, why: str) -> NoReturn:
        raise MetadataFault(why)

    def successor(self) -> Member | None:
        """Return the member that could take over, if this coordinator leads."""
        return self.failover.standings.successor() if self.leadership.leads else None

    def stop(self) -> None:
        """Stop for good."""
        self.story.world.crash(self.node)
        self.leadership.leads = False

    def _die(self) -> None:
        if not self.node.up:
            return
        self.stop()
        self.story.world.later(self.story.random.uniform(0.1, 3.0), self.start)

    # -- clients ---------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            await self.failover.keep()
        except (MetadataFault, Killed) as fault:
            raise_failed_check(fault)
            self._die()

    async def _work(self) -> None:
        story = self.story
        while True:
            await self._sleep(story.random.uniform(0.02, 0.4))
            if story.is_hostile and story.random.random() < 0.01:
                self._die()
                return
            if not self.leadership.leads or story.is_quiet:
                continue
            if story.is_hostile and story.random.random() < 0.01:
                story.world.spawn(self.node, "handing over", self._hand_over(), is_vital=True)
                continue
            if story.random.random() < 0.3:
                before, names = set(story.acknowledged), self.names()
                await self._commits.until_durable(self.metadata.rows.last)
                if self.leadership.may_answer:
                    assert names >= before, "a leader that was replaced has answered"
                    story.acknowledged |= names
                continue
            self._made += 1
            name = f"{self.name}-{self.node.generation}-{self._made}"
            try:
                await self._commits(partial(_make, name))
            except PeacefsError:
                continue
            story.acknowledged.add(name)

    async def make(self, name: str) -> None:
        """Make a directory. Return when that is acknowledged."""
        await self._commits(partial(_make, name))

    async def _hand_over(self) -> None:
        try:
            await self.failover.hand_over()
        except PeacefsError:
            return
        except MetadataFault:
            self._die()
            return
        self.story.handed_over += 1
        self._die()

    def names(self) -> set[str]:
        page = namespace.list_page(self.metadata.reader(), parse_path("/"), None, 1_000_000)
        return {entry.name for entry in page.entries}

    # -- the interface for its failover ----------------------------------------------------------------

    def changed(self, touched: Touched) -> None:
        """Do nothing: this coordinator caches no rows."""

    def tick(self) -> None:
        """Do nothing: this coordinator has no datanodes."""

    @property
    def is_warm(self) -> bool:
        return True

    def lead(self, begun: Begun) -> None:
        self.story.led.append(self.name)


def _make(name: str, tx: Transaction) -> bool:
    return namespace.mkdirs(tx, parse_path(f"/{name}"), "ann", 0o755, 1)
