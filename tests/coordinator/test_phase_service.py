"""Phases over REST: a writer that asks gets a phase and keeps it; a real process makes the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from peacefs.coordinator.operations.phases import PhaseRequest, PhaseService, forgotten_periods, phases_max
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.side_process.phase_planner import PhasePlanner
from peacefs.peace.phases import Phased, PhasePlan, plan_phases
from peacefs.peace.simulator.scenarios import star
from peacefs.protocol.errors import AccessDenied, BadRequest, Overloaded
from peacefs.topology.rate_curve import MB


class Clock:
    now_s = 1000.0


async def here(recurrences: Sequence[Phased]) -> PhasePlan:
    return plan_phases(recurrences)


def service(clock: Clock) -> PhaseService:
    return PhaseService(here, lambda: star(4, 4, 1.0), lambda: clock.now_s)


def wants(root: str, period_s: float = 10.0, size: int = 500 * MB) -> PhaseRequest:
    return PhaseRequest(root, period_s, size, 3)


def test_writers_are_told_apart_times_by_a_process_and_keep_them() -> None:
    """500 MB with three replicas keep 16 disks of 45 MB/s busy for two seconds, so four writers fit in ten."""

    async def ask() -> None:
        clock = Clock()
        phases = PhaseService(PhasePlanner().plan, lambda: star(4, 4, 1.0), lambda: clock.now_s)
        told = await asyncio.gather(*(phases.propose(wants(f"/u{n}"), "me") for n in range(4)))
        times_s = sorted(each.phase_s for each in told)
        following = [*times_s[1:], times_s[0]]
        apart_s = [(later - earlier) % 10.0 for earlier, later in zip(times_s, following, strict=True)]
        assert min(apart_s) >= 2.0
        for each in told:
            assert (clock.now_s + each.next_in_s) % 10.0 == pytest.approx(each.phase_s % 10.0)
        clock.now_s += 37.0
        assert (await phases.propose(wants("/u0"), "me")).phase_s == told[0].phase_s

    asyncio.run(ask())


def test_writers_of_unknown_size_do_not_meet_either() -> None:
    async def ask() -> None:
        phases = service(Clock())
        told = [await phases.propose(wants(f"/u{n}", size=0), "me") for n in range(4)]
        assert len({each.phase_s for each in told}) == 4

    asyncio.run(ask())


def test_a_period_that_changes_during_a_plan_gets_a_phase_of_its_own() -> None:
    """Two writers keep all disks busy for two of four seconds each, so their phases are two seconds apart."""

    async def ask() -> None:
        planning, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(recurrences: Sequence[Phased]) -> PhasePlan:
            planning.set()
            await go_on.wait()
            return plan_phases(recurrences)

        phases = PhaseService(slowly, lambda: star(4, 4, 1.0), lambda: 1000.0)
        first = asyncio.create_task(phases.propose(wants("/b", 60.0), "me"))
        await planning.wait()
        changed = asyncio.create_task(phases.propose(wants("/b", 4.0, size=480 * MB), "me"))
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(Overloaded, match="no phase of /b was planned in time"):
            await first
        one = await changed
        other = await phases.propose(wants("/a", 4.0, size=480 * MB), "me")
        assert (one.phase_s - other.phase_s) % 4.0 == pytest.approx(2.0, abs=0.02)
        assert (one.period_s, other.period_s) == (4.0, 4.0)

    asyncio.run(ask())


def test_users_see_their_own_phases_and_take_no_roots_of_others() -> None:
    async def ask() -> None:
        phases = service(Clock())
        await phases.propose(wants("/a"), "ann")
        await phases.propose(wants("/b"), "ben")
        with pytest.raises(AccessDenied, match="/a has a phase of another user"):
            await phases.propose(wants("/a"), "ben")
        assert [each.root for each in phases.shown_to(Viewer("ann", sees_all=False))] == ["/a"]
        assert [each.root for each in phases.shown_to(Viewer("root", sees_all=True))] == ["/a", "/b"]

    asyncio.run(ask())


def test_the_silent_are_forgotten_and_the_number_of_writers_is_bounded() -> None:
    async def ask() -> None:
        clock = Clock()
        phases = service(clock)
        await phases.propose(wants("/a", 1.0), "me")
        clock.now_s += forgotten_periods + 1
        assert phases.shown_to(Viewer("me", sees_all=True)) == []
        phases._writers = dict.fromkeys(map(str, range(phases_max)), None)  # type: ignore[arg-type]
        phases._forget_silent = lambda now_s: None  # type: ignore[method-assign]
        with pytest.raises(Overloaded, match="writers have phases already"):
            await phases.propose(wants("/more"), "me")

    asyncio.run(ask())


@pytest.mark.parametrize("period_s", [0.0, -1.0, 0.5, 1e9, float("nan")])
def test_a_period_out_of_range_is_refused(period_s: float) -> None:
    with pytest.raises(BadRequest, match="out of range: 1 to 3600 s"):
        asyncio.run(service(Clock()).propose(wants("/a", period_s), "me"))
