"""The coordinator's background tasks: load chunks, tick the core, and repeat periodic work.

The core decides what to do. This module decides when, and that no task blocks the others for long. The service and
the simulation run all of `CoordinatorTasks.all`, so a new task is simulated, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from peacefs.coordinator.operations.access_times import AccessTimes
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.protocol.errors import ServiceUnready

from .chunk_loading import ChunkLoading
from .ticking import Ticking

# Interval in which the coordinator looks for expired trash, and the longest time for which trash may be kept.
trash_look_interval_s: Final = 60.0
access_times_interval_s: Final = 1.0
temporary_look_interval_s: Final = 1800.0
supervision_tick_interval_s: Final = 0.5


class Periodic(NamedTuple):
    """A task that repeats. Work that is refused because the disk is full is done when there is room."""

    name: str
    every_s: float
    turn: Callable[[], Awaitable[object]]


class CoordinatorTasks:
    """The tasks of one coordinator. If a task raises an error, the coordinator has failed."""

    def __init__(
        self,
        chunk_loading: ChunkLoading,
        ticking: Ticking,
        files: Files,
        access_times: AccessTimes,
        supervising: SupervisionService,
        *,
        sleep: Callable[[float], Awaitable[None]],
        collect_temporary_hours: float | None = None,
    ) -> None:
        """Temporary files of dead writers are deleted after these hours; None for never."""
        self._chunk_loading = chunk_loading
        self._ticking = ticking
        self._files = files
        self._access_times = access_times
        self._supervision_service = supervising
        self._sleep = sleep
        self._collect_temporary_hours = collect_temporary_hours

    def all(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """All tasks by name, to be run until the coordinator ends."""
        yield from self.of_any()
        yield from self.of_leader()

    def of_any(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return the tasks of each coordinator, whether it leads or stands by."""
        yield "loading chunks", self._chunk_loading.run()

    def of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return the tasks that begin when the coordinator leads."""
        yield "ticking", self._ticking.keep()
        for periodic in self._periodic():
            yield periodic.name, self._repeat(periodic)

    def _periodic(self) -> Iterator[Periodic]:
        yield Periodic("supervising queries", supervision_tick_interval_s, self._supervision_service.tick)
        yield Periodic("collecting temporary files", temporary_look_interval_s, self._collect_temporary_files)
        yield Periodic("emptying the trash", trash_look_interval_s, self._files.trash.empty)
        if self._access_times.are_kept:
            yield Periodic("writing access times", access_times_interval_s, self._access_times.write)

    async def _repeat(self, periodic: Periodic) -> None:
        while True:
            await self._sleep(periodic.every_s)
            with suppress(ServiceUnready):
                await periodic.turn()

    async def _collect_temporary_files(self) -> None:
        if self._collect_temporary_hours is not None:
            await self._files.temporary_files.collect(self._collect_temporary_hours * 3600)
