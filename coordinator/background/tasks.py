"""The coordinator's background tasks: load chunks, tick the core, reclaim, empty the trash, supervise queries.

The core decides; here is when, and that no task holds others up for long. Whoever runs a coordinator runs all
of `CoordinatorTasks.all`, the service and the simulated world alike: a task that is added there is played under
seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, NamedTuple

from peacefs.coordinator.limits import tick_interval_s
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.supervision import SupervisionService
from peacefs.protocol.errors import ServiceUnready

from .epoch_floor import EpochService

# Chunks that a starting coordinator loads before others get their turn.
load_chunks_per_turn: Final = 250
# The coordinator checks so often whether something in a trash has expired; the longest time it may be kept.
trash_look_interval_s: Final = 60.0
access_times_interval_s: Final = 1.0
temporary_look_interval_s: Final = 1800.0
# While copies are under way: those that are done make room for others at the next tick alone, and a small chunk is
# copied in a few milliseconds.
repair_tick_interval_s: Final = 0.05
tidy_interval_s: Final = 60.0
supervision_tick_interval_s: Final = 0.5


log = logging.getLogger("peacefs.coordinator")


class Periodic(NamedTuple):
    """A task that repeats. What is refused while the disk is full is done when there is room."""

    name: str
    every_s: float
    turn: Callable[[], Awaitable[object]]


class CoordinatorTasks:
    """The tasks of one coordinator, which end with it. Where a task raises, the coordinator has failed."""

    def __init__(
        self,
        context: OperationContext,
        files: Files,
        supervising: SupervisionService,
        epochs: EpochService,
        *,
        on_loaded: Callable[[], None],
        collect_temporary_hours: float | None = None,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`on_loaded` is called when all chunks are known, and loading them goes on inside `loading`.

        Temporary files that have been left for so many hours are deleted; None for never.
        """
        self._at = context
        self._core = context.core
        self._files = files
        self._supervision_service = supervising
        self._epochs = epochs
        self._on_loaded = on_loaded
        self._collect_temporary_hours = collect_temporary_hours
        self._loading = loading
        self._tidy_at_s = 0.0
        #: When the core was ticked last, here or while standing by.
        self.ticked_s = context.monotonic()

    def all(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Each task with its name, to be run until the coordinator ends."""
        yield from self.of_any()
        yield from self.of_leader()

    def of_any(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The tasks of every coordinator, whether it leads or stands by."""
        yield "loading chunks", self._load_chunks()

    def of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The tasks that begin when it leads."""
        yield "ticking", self._keep_ticking()
        for periodic in self._periodic():
            yield periodic.name, self._repeat(periodic)

    def _periodic(self) -> Iterator[Periodic]:
        yield Periodic("supervising queries", supervision_tick_interval_s, self._supervision_service.tick)
        yield Periodic("collecting temporary files", temporary_look_interval_s, self._collect_temporary_files)
        yield Periodic("emptying the trash", trash_look_interval_s, self._files.trash.empty)
        if self._at.access_times.are_kept:
            yield Periodic("writing access times", access_times_interval_s, self._at.access_times.write)

    async def _repeat(self, periodic: Periodic) -> None:
        while True:
            await self._at.sleep(periodic.every_s)
            with suppress(ServiceUnready):
                await periodic.turn()

    async def _load_chunks(self) -> None:
        after, count = 0, 0
        with self._loading():
            while page := namespace.chunk_page(self._at.reader, after, load_chunks_per_turn):
                self._core.load(page)
                after, count = page[-1].chunk, count + len(page)
                await self._at.sleep(0)
        self._core.loaded()
        self._on_loaded()
        log.info("%d chunks are known; waiting for the datanodes' reports", count)

    async def _keep_ticking(self) -> None:
        while True:
            now_s = self.ticked_s = self._at.monotonic()
            self._at.perform(self._core.tick(now_s))
            interval_s = repair_tick_interval_s if self._core.cluster.repair.under_way else tick_interval_s
            await self._take_turns(now_s + interval_s)
            with suppress(ServiceUnready):
                await self._epochs.raise_gc_floor(now_s)
            with suppress(ServiceUnready):
                await self._tidy_up(now_s)
            await self._at.sleep(0 if self._core.has_more else interval_s)

    async def _take_turns(self, until_s: float) -> None:
        """Do what the tick has left, while others get their turn in between, and not beyond the next tick."""
        while self._core.has_more and self._at.monotonic() < until_s:
            await self._at.sleep(0)
            self._at.perform(self._core.turn(self._at.monotonic()))

    async def _tidy_up(self, now_s: float) -> None:
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + tidy_interval_s
            await self._files.names.forget_answers()
        await self._files.names.reclaim()

    async def _collect_temporary_files(self) -> None:
        if self._collect_temporary_hours is not None:
            await self._files.temporary_files.collect(self._collect_temporary_hours * 3600)
