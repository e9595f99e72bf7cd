"""Proposes phases to writers that can choose when to write, such as units of the I/O service.

A writer that checkpoints every `period_s` asks for a phase: the time within the period at which to write. Phases
are planned so that checkpoints of equal or harmonic periods do not meet, by a process beside the coordinator.
Requests that arrive during a plan are planned together by the next plan. A writer keeps its phase if it asks again
within `forgotten_periods` of its periods; otherwise it is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from peacefs.peace.phases import DISKS, Phased, PhasePlan
from peacefs.protocol.errors import AccessDenied, BadRequest, Overloaded
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.values.schedule import ProposedPhase
from peacefs.topology.model import Topology

from .viewer import Viewer

phases_max: Final = 10_000
phase_period_s_min: Final = 1.0
phase_period_s_max: Final = 3600.0
forgotten_periods: Final = 10


@dataclass(frozen=True, slots=True)
class PhaseRequest:
    """A writer below `root` writes about `size` bytes with `replication` replicas every `period_s`.

    A size of 0 is unknown. It is planned as one chunk, so that such writers do not meet either.
    """

    root: str
    period_s: float
    size: int
    replication: int


@dataclass(slots=True)
class _Writer:
    request: PhaseRequest
    user: str
    heard_s: float
    phase_s: float | None = None

    def is_silent(self, now_s: float) -> bool:
        return now_s - self.heard_s > forgotten_periods * self.request.period_s


class PhaseService:
    """Belongs to the event loop. Phases are seconds of the Unix time within a period."""

    def __init__(
        self,
        plan: Callable[[Sequence[Phased]], Awaitable[PhasePlan]],
        topology: Callable[[], Topology],
        wall_clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._wall_clock = wall_clock
        self._writers: dict[str, _Writer] = {}
        self._planning = asyncio.Lock()

    async def propose(self, request: PhaseRequest, user: str) -> ProposedPhase:
        """Return the writer's phase, planned if it is new or its period has changed.

        Raises BadRequest for a number out of range, AccessDenied for another user's root, Overloaded if there are
        too many writers or plans, or if the same root asks for another period meanwhile.
        """
        if not phase_period_s_min <= request.period_s <= phase_period_s_max:
            raise BadRequest(
                f"a period of {request.period_s:g} s is out of range: {phase_period_s_min:g} to "
                f"{phase_period_s_max:g} s"
            )
        now_s = self._wall_clock()
        self._forget_silent(now_s)
        writer = self._writers.get(request.root)
        if writer is not None and writer.user != user:
            raise AccessDenied(f"{request.root} has a phase of another user")
        if writer is None:
            if len(self._writers) >= phases_max:
                raise Overloaded(f"{len(self._writers)} writers have phases already; try again later")
            writer = self._writers[request.root] = _Writer(request, user, now_s)
        elif writer.request.period_s != request.period_s:
            writer.phase_s = None
        writer.request, writer.heard_s = request, now_s
        if writer.phase_s is None:
            async with self._planning:
                if writer.phase_s is None:
                    await self._plan_all()
            if writer.phase_s is None:
                raise Overloaded(f"no phase of {request.root} was planned in time; try again")
        return self._shown(writer, writer.phase_s)

    def shown_to(self, viewer: Viewer) -> list[ProposedPhase]:
        """Return the phases that a viewer may see, by root."""
        self._forget_silent(self._wall_clock())
        return [
            self._shown(writer, writer.phase_s)
            for _, writer in sorted(self._writers.items())
            if writer.phase_s is not None and viewer.sees(writer.user)
        ]

    async def _plan_all(self) -> None:
        disks = sum(server.disk.best_rate for server in self._topology().servers.values()) or 1.0
        phased = []
        for root, writer in self._writers.items():
            request = writer.request
            # An occurrence is planned as if it had all disks to itself, and at most half of its period.
            work_s = request.replication * (request.size or chunk_bytes_max) / disks
            duration_s = min(request.period_s / 2, work_s)
            phased.append(Phased(root, request.period_s, duration_s, {DISKS: work_s}, writer.phase_s))
        planned = await self._plan(phased)
        for each in phased:
            known = self._writers.get(each.name)
            # The writer may have gone, or have asked for another period, while the plan was made.
            if known is not None and known.request.period_s == each.period_s:
                known.phase_s = planned.phases_s[each.name]

    def _shown(self, writer: _Writer, phase_s: float) -> ProposedPhase:
        request = writer.request
        next_in_s = (phase_s - self._wall_clock()) % request.period_s
        return ProposedPhase(request.root, request.period_s, phase_s, next_in_s)

    def _forget_silent(self, now_s: float) -> None:
        for root in [root for root, writer in self._writers.items() if writer.is_silent(now_s)]:
            del self._writers[root]
