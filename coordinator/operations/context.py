"""The parts that all operations work with, and what all operations do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.core import Command, CoordinatorCore
from peacefs.coordinator.limits import startup_waiting_max
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.permissions import Callers, Principal
from peacefs.coordinator.namespace.retry_cache import A, Applied, RequestKey, run_once
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.protocol.errors import SafeMode
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import read_token_lifetime_s, startup_hold_s
from peacefs.protocol.tokens import Signer

from .access_times import AccessTimes
from .chunk_permits import ChunkPermits
from .core_driver import CoreDriver, DatanodeSender
from .durability.commits import Commits
from .durability.durable_answers import DurableAnswers
from .leases import Leases
from .under_construction import UnderConstruction
from .waiters import Wait, wait_on_loop

T = TypeVar("T")

# Maximum number of users whose principals are cached.
known_callers_max: Final = 4096

_READY_POLL_S = 0.05
_POLLERS = 64


@dataclass(frozen=True)
class OperationContext:
    """The parts of a coordinator that operations on files need. Used from one event loop only."""

    reader: Reader
    commit: Commits
    core: CoordinatorCore
    signer: Signer
    links: DatanodeSender
    durable: DurableAnswers
    callers: Callers = field(default_factory=Callers)
    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    wait: Wait = wait_on_loop
    #: Seconds after which the rights of a reader are checked again.
    read_token_lifetime_s: float = read_token_lifetime_s
    #: A read changes a file's access time if that is older than this; 0 for never.
    access_time_precision_s: float = 0.0
    waiting_max: int = startup_waiting_max
    #: Called for each grant with the seconds that its write set had waited.
    on_waited: Callable[[float], object] = lambda seconds: None

    _waiting: set[object] = field(default_factory=set, init=False)
    #: Cache of `callers.of`, whose results do not change while the coordinator runs.
    _known_callers: dict[str, Principal] = field(default_factory=dict, init=False)

    @cached_property
    def cluster(self) -> Cluster:
        """The part of the core that knows datanodes and replicas."""
        return self.core.cluster

    @cached_property
    def numbering(self) -> Numbering:
        """Draws ids of chunks, versions, leases and runs."""
        return self.core.numbering

    @cached_property
    def leases(self) -> Leases:
        """The leases whose holders gave a sign of life lately."""
        return Leases(self.monotonic())

    @cached_property
    def under_construction(self) -> UnderConstruction:
        """The names that were begun over WebHDFS and are not visible yet."""
        return UnderConstruction(self.links, self.leases, self.monotonic, self.wait)

    @cached_property
    def access_times(self) -> AccessTimes:
        """Reads whose access times are not committed yet."""
        return AccessTimes(self.commit, self.now_ms, self.access_time_precision_s)

    @cached_property
    def permits(self) -> ChunkPermits:
        """Signs permits to write chunks."""
        return ChunkPermits(self.core, self.signer, self.monotonic, self.wall_clock)

    @cached_property
    def driver(self) -> CoreDriver:
        """Performs the core's commands."""
        return CoreDriver(self.core, self.links, self.permits, self.monotonic, self.on_waited, self.wait)

    def perform(self, commands: Iterable[Command]) -> None:
        """Perform the commands that an event of the core caused, before the next event."""
        self.driver.perform(commands)

    def caller(self, user: str) -> Principal:
        """Return the principal for requests of `user`. Raises BadRequest for an impossible name."""
        known = self._known_callers.get(user)
        if known is None:
            if len(self._known_callers) >= known_callers_max:
                self._known_callers.clear()
            known = self._known_callers[user] = self.callers.of(user)
        return known

    def now_ms(self) -> int:
        return int(self.wall_clock() * 1000)

    def once(self, key: RequestKey, change: Callable[[Transaction], Applied[A]]) -> Applied[A]:
        """Make a change once, as `Commits.now` does; a repeated request gets the cached reply.

        See `retry_cache`.
        """
        return self.commit.now(lambda tx: run_once(tx, key, self.now_ms(), change))

    async def change(
        self,
        path: str,
        user: str,
        what: tuple[object, ...],
        request_id: str,
        change: Callable[[Transaction, NamespacePath, Principal], A],
    ) -> A:
        """Change what is at `path`, and return the answer. A repeated request gets the cached reply.

        `what` is the name of the change and its arguments. A request counts as repeated only if they are equal.
        """
        parsed, caller = changeable_path(path), self.caller(user)
        if self.under_construction.begun:
            await self.under_construction.settle(parsed)
        name, *arguments = what
        key = RequestKey(request_id, (name, str(parsed), user, *arguments))
        return self.once(key, lambda tx: Applied(change(tx, parsed, caller))).answer

    def free(self, records: Sequence[ChunkRecord]) -> None:
        """Drop the replicas of chunks without a file, once the change is durable and no reader needs them."""
        if records:
            self.commit.after(lambda: self.perform(self.core.freed(self.monotonic(), records)))

    @property
    def is_ready(self) -> bool:
        """Return True if requests pass `until_ready` without waiting."""
        return self.cluster.ready(self.monotonic())

    @property
    def held(self) -> int:
        """Return the number of requests that wait in `until_ready`."""
        return len(self._waiting)

    async def until_ready(self) -> None:
        """Wait until the datanodes of a coordinator that has just started are known. Raises SafeMode."""
        deadline_s = self.monotonic() + startup_hold_s
        while not self.cluster.ready(self.monotonic()):
            if self.monotonic() >= deadline_s or len(self._waiting) >= self.waiting_max:
                raise SafeMode("the coordinator has just started and still waits for its datanodes; try again")
            me = object()
            self._waiting.add(me)
            try:
                # Poll less often if more requests wait, so that the total rate of polls stays the same.
                await self.sleep(_READY_POLL_S * max(1.0, len(self._waiting) / _POLLERS))
            finally:
                self._waiting.discard(me)

    async def in_turns(self, turns: Generator[None, None, T]) -> T:
        """Run a long computation in steps. Other requests run between the steps."""
        while True:
            try:
                next(turns)
            except StopIteration as stop:
                result: T = stop.value
                return result
            await self.sleep(0)
