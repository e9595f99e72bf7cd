"""Ticks the coordinator's core, and does the work that a tick leaves in turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from peacefs.coordinator.core import Command, CoordinatorCore
from peacefs.coordinator.limits import tick_interval_s
from peacefs.coordinator.operations.names import Names
from peacefs.protocol.errors import ServiceUnready

from .epoch_floor import EpochService

# Interval while copies are under way. A finished copy makes room for another only at a tick, and a small chunk is
# copied in a few milliseconds.
repair_tick_interval_s: Final = 0.05
tidy_interval_s: Final = 60.0


class Ticking:
    """Ticks the core of a coordinator that leads or stands by."""

    def __init__(
        self,
        core: CoordinatorCore,
        perform: Callable[[Iterable[Command]], None],
        epochs: EpochService,
        names: Names,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`perform` performs the core's commands. Each tick also raises the GC floor and reclaims names."""
        self._core = core
        self._perform = perform
        self._epochs = epochs
        self._names = names
        self._monotonic = monotonic
        self._sleep = sleep
        self._tidy_at_s = 0.0
        #: Time of the last tick.
        self.ticked_s = monotonic()

    def stand_by(self) -> None:
        """Tick while another coordinator leads."""
        now_s = self.ticked_s = self._monotonic()
        self._perform(self._core.stand_by(now_s))

    async def keep(self) -> None:
        """Tick for as long as this coordinator leads."""
        while True:
            now_s = self.ticked_s = self._monotonic()
            self._perform(self._core.tick(now_s))
            interval_s = repair_tick_interval_s if self._core.cluster.repair.under_way else tick_interval_s
            await self._take_turns(now_s + interval_s)
            with suppress(ServiceUnready):
                await self._epochs.raise_gc_floor(now_s)
            with suppress(ServiceUnready):
                await self._tidy_up(now_s)
            await self._sleep(0 if self._core.has_more else interval_s)

    async def _take_turns(self, until_s: float) -> None:
        """Do the work that the tick has left, in turns, until the next tick is due."""
        while self._core.has_more and self._monotonic() < until_s:
            await self._sleep(0)
            self._perform(self._core.turn(self._monotonic()))

    async def _tidy_up(self, now_s: float) -> None:
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + tidy_interval_s
            await self._names.forget_answers()
        await self._names.reclaim()
