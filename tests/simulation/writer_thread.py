"""A simulation of the thread that writes log entries: the coordinator's event loop hears of them later.

An entry is in the log at one moment, and the loop hears of it later, after other work. If the node crashes between
the two, the entry exists although nobody was told.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulation.durable_log import DurableLog
from simulation.simulated_links import wait
from simulation.world import Node, World

from peacefs.coordinator.journal.writer import journal_repeat_pause_s
from peacefs.coordinator.limits import journal_unsure_max_s
from peacefs.coordinator.metadata.group_commit import GroupCommit, Settled
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.protocol.errors import ServiceUnready
from peacefs.runtime import effects as fx

_WRITE_S_MAX = 0.004
#: Maximum delays before the loop hears of an entry, because it may be busy. One is drawn for each entry.
_HEARD_AFTER_S = (0.001, 0.004, 0.02, 0.3)
#: Longer than any wait in a test.
_PATIENCE_S = 100_000.0


class WriterThread:
    """A `group_commit.Run` in the world's time. It ends with the current life of its node."""

    def __init__(
        self, world: World, node: Node, random: Random, reaches_journal: Callable[[], bool] = lambda: True
    ) -> None:
        """While `reaches_journal` returns False, the thread retries; the event loop continues meanwhile."""
        self._world = world
        self._node = node
        self._generation = node.generation
        self._random = random
        self._reaches_journal = reaches_journal

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        give_up_s = self._world.now_s + journal_unsure_max_s

        def write() -> None:
            error: BaseException | None = None
            if not self._reaches_journal():
                if self._world.now_s < give_up_s:
                    self.later(journal_repeat_pause_s, write)
                    return
                error = MetadataFault("no answer came from the journal")
            else:
                try:
                    work()
                except MetadataFault as fault:
                    raise_failed_check(fault)
                    error = fault
                except Exception as raised:
                    error = raised
            heard_after_s = self._random.uniform(0.0, self._random.choice(_HEARD_AFTER_S))
            self.later(heard_after_s, lambda: self._tell(done, error))

        self.later(self._random.uniform(0.0, _WRITE_S_MAX), write)

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` on the event loop after all callbacks that are ready."""
        self.later(0.0, action)

    def close(self) -> None:
        """Do nothing: simulated processes only end when killed."""

    def _tell(self, done: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        try:
            done(error)
        except MetadataFault:
            if self._lives:
                raise

    @property
    def _lives(self) -> bool:
        return self._node.up and self._node.generation == self._generation

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` after a delay if the process still lives, and not before the end of a pause."""

        def act() -> None:
            if not self._lives:
                return
            if self._node.paused_until_s > self._world.now_s:
                self.later(self._node.paused_until_s - self._world.now_s, action)
                return
            action()

        self._world.later(delay_s, act)


def raise_failed_check(fault: BaseException) -> None:
    """Raise the AssertionError of a check that failed during a write. The store wraps every error."""
    if isinstance(fault.__cause__, AssertionError):
        raise fault.__cause__


class SimulatedCommits(Commits):
    """The product's commits over a simulated thread, as on the service's event loop."""

    def __init__(
        self,
        metadata: Metadata,
        log: DurableLog,
        writer: WriterThread,
        on_fault: Callable[[MetadataFault], None],
        refuse: Callable[[], object] = lambda: None,
    ) -> None:
        self._log = log
        self.group = GroupCommit(metadata, on_fault, run=writer, soon=writer.soon)
        super().__init__(self.group, _settled_in_world, refuse)

    def when_durable(self, number: int, settled: Settled) -> None:
        def checked(error: ServiceUnready | None) -> None:
            if error is None:
                self._log.check_told(number)
            settled(error)

        super().when_durable(number, checked)

    def tend(self) -> None:
        self.group.tend(idle=True)


async def _settled_in_world(register: Callable[[Settled], None]) -> None:
    settled = _Settled()
    register(settled)
    await settled.wait()


class _Settled:
    """A `Settled` callback that a task can await."""

    def __init__(self) -> None:
        self._ticket = fx.Ticket()
        self._error: ServiceUnready | None = None

    def __call__(self, error: ServiceUnready | None) -> None:
        self._error = error
        self._ticket.fire()

    async def wait(self) -> None:
        if not self._ticket.fired:
            await wait(self._ticket, _PATIENCE_S)
        assert self._ticket.fired, "nothing was heard of a commit"
        if self._error is not None:
            raise self._error
