"""REST routes below `/v1/schedule`: waiting writers, recurrences, the policy, and phases."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Any, Final

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field

from peacefs.coordinator.api.views.visible import visible_schedule
from peacefs.coordinator.limits import grant_history_s
from peacefs.coordinator.operations.phases import PhaseRequest, PhaseService
from peacefs.coordinator.operations.read_grants import ReadGrantService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.operations.write_grants import WriteGrantService
from peacefs.coordinator.scheduling.read_scheduler import RecoveryReads
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.coordinator.scheduling.write_sets import InFlight, ScheduledSet
from peacefs.protocol.ids import show
from peacefs.protocol.limits import pipeline_hops_max, replication_default
from peacefs.protocol.values.schedule import (
    CheckpointReads,
    ProposedPhase,
    QueuedSet,
    Recurrence,
    Recurrences,
    Schedule,
    ShownGrant,
    WaitingTimes,
)

from .common import Body, named_user

# The maximum number of queue entries, and of grants in flight, in the answer.
schedule_entries_shown_max: Final = 200
# Of more recurrences only the most recently seen ones are looked at: 2,000 take 40 ms of the event loop.
recurrences_looked_at_max: Final = 2000


class PolicyBody(Body):
    model_config = ConfigDict(extra="forbid")

    policy: str


_ROOT_CHARACTERS_MAX = 4096


class PhaseBody(Body):
    """A writer that writes about `bytes` bytes every `period_s` seconds, for the checkpoints below `root`.

    With 0 bytes the size is unknown, and one chunk is assumed.
    """

    model_config = ConfigDict(extra="forbid")

    root: str = Field(min_length=1, max_length=_ROOT_CHARACTERS_MAX)
    period_s: float
    bytes: int = Field(0, ge=0, lt=1 << 63)
    replication: int = Field(replication_default, ge=1, le=pipeline_hops_max)
    user: str = ""


def phase_routes(phases: PhaseService, viewing: Any) -> APIRouter:
    """Return the routes by which writers ask when to write."""
    router = APIRouter(prefix="/v1/schedule/phases")

    @router.post("")
    async def propose(body: PhaseBody, request: Request) -> ProposedPhase:
        """Propose when a writer with a period should write, so that checkpoints do not meet.

        Ask again within ten periods to keep the phase.
        """
        wanted = PhaseRequest(body.root, body.period_s, body.bytes, body.replication)
        return await phases.propose(wanted, named_user(request, body.user))

    @router.get("")
    async def shown(viewer: Viewer = viewing) -> list[ProposedPhase]:
        """Return the phases of the caller's writers. Superusers see those of all users."""
        return phases.shown_to(viewer)

    return router


def schedule_routes(
    write_grants: Callable[[], WriteGrantService],
    read_grants: Callable[[], ReadGrantService],
    for_superusers: Any,
    viewing: Any,
) -> APIRouter:
    """Return the routes for waiting writes, recurrences and the policy.

    `for_superusers` guards the change of the policy; `viewing` is the dependency for the viewer.
    """
    router = APIRouter(prefix="/v1/schedule")

    @router.get("")
    async def schedule(viewer: Viewer = viewing) -> Schedule:
        """Return the counts, and the caller's write sets that wait or have grants. Superusers see all sets."""
        shown = described_schedule(write_grants(), read_grants())
        return visible_schedule(shown, sets_of(write_grants(), viewer), viewer)

    @router.get("/recurrences")
    async def recurrences(viewer: Viewer = viewing) -> Recurrences:
        """Return the recurring writes of the caller, with their periods. Superusers get those of all users."""
        return described_recurrences(write_grants(), viewer)

    @router.put("/policy", dependencies=[for_superusers])
    async def policy(body: PolicyBody) -> Schedule:
        """Change the scheduling policy until the coordinator is started again."""
        write_grants().change_policy(body.policy)
        return described_schedule(write_grants(), read_grants())

    return router


def sets_of(write_grants: WriteGrantService, viewer: Viewer) -> set[str]:
    """Return the names of the write sets that a viewer may see: waiting, with grants, or recently ended."""
    scheduling = write_grants.scheduling
    own = {each.request.name for each in scheduling.queue if viewer.sees(each.request.user)}
    own |= {each.write_set for each in scheduling.grants if viewer.sees(each.user)}
    ended = scheduling.history.since(write_grants.now_s() - grant_history_s)
    return own | {each.write_set for each in ended if viewer.sees(each.user)}


def described_schedule(write_grants: WriteGrantService, read_grants: ReadGrantService) -> Schedule:
    """Return the answer to `GET /v1/schedule` for a superuser."""
    scheduling, now_s = write_grants.scheduling, write_grants.now_s()
    queue, times = scheduling.queue, scheduling.times
    return Schedule(
        policy=scheduling.policy_name,
        epoch=scheduling.epoch,
        datanodes=scheduling.datanodes,
        sets_waiting=len(queue),
        chunks_waiting=scheduling.chunks_waiting,
        grants_in_flight=len(scheduling.grants),
        granted_total=times.granted_total,
        lapsed_total=times.lapsed_total,
        fast_lane_chunks_total=write_grants.fast_lane.chunks_total,
        fast_lane_bytes_total=write_grants.fast_lane.bytes_total,
        waiting_times=WaitingTimes(
            median_s=times.quantile(0.5),
            p95_s=times.quantile(0.95),
            longest_s=times.quantile(1.0),
            chunk_s=times.grant_s,
        ),
        recovery=_recovery(read_grants.reads, read_grants.now_s()),
        queue=[_queued(scheduling, each, now_s) for each in queue[:schedule_entries_shown_max]],
        grants=[
            _granted(scheduling, each, now_s) for each in list(scheduling.grants)[:schedule_entries_shown_max]
        ],
    )


def described_recurrences(write_grants: WriteGrantService, viewer: Viewer) -> Recurrences:
    """Return the recurrences that a viewer may see, those that are expected next first."""
    now_s, known = write_grants.now_s(), write_grants.recurrences
    forecasts = known.forecasts(now_s, recurrences_looked_at_max)
    seen = (each for each in forecasts if viewer.sees(known.user_of(each.key)))
    soonest = nsmallest(schedule_entries_shown_max, seen, key=lambda each: (each.next_s(now_s), each.key.root))
    return Recurrences(
        watched=len(known),
        waiting_share=write_grants.scheduling.waiting_share,
        recurrences=[
            Recurrence(
                root=each.key.root,
                write_class=each.key.write_class.word,
                period_s=each.period_s,
                spread_s=each.spread_s,
                next_in_s=each.next_s(now_s) - now_s,
                bytes=each.size,
                bytes_max=each.size_max,
                duration_s=each.duration_s,
                occurrences=each.occurrences,
            )
            for each in soonest
        ],
    )


def _recovery(reads: RecoveryReads, now_s: float) -> CheckpointReads:
    readers = reads.readers
    waiting = [reader for reader in readers if reader.waiting]
    return CheckpointReads(
        readers=len(readers),
        chunks_read=sum(len(reader.grants) for reader in readers),
        chunks_waiting=sum(reader.waiting for reader in waiting),
        longest_wait_s=max((now_s - reader.asked_s for reader in waiting if not reader.grants), default=0.0),
        at_datanode=reads.at_node,
        leaves_total=reads.grants_total,
    )


def _queued(scheduling: Scheduling, queued: ScheduledSet, now_s: float) -> QueuedSet:
    request = queued.request
    return QueuedSet(
        write_set=request.name,
        link=request.link,
        writer=request.writer,
        host=request.source.host if request.source else None,
        root=request.source.root if request.source else None,
        replication=request.replication,
        chunks_waiting=len(queued.waiting),
        bytes_waiting=sum(queued.waiting.values()),
        chunks_in_flight=len(queued.in_flight),
        age_s=now_s - queued.asked_s,
        expected_start_s=scheduling.expected_start_s(request.name),
        write_class=request.write_class.word,
    )


def _granted(scheduling: Scheduling, grant: InFlight, now_s: float) -> ShownGrant:
    return ShownGrant(
        epoch=scheduling.epoch,
        number=grant.number,
        write_set=grant.write_set,
        chunk=show(grant.chunk),
        bytes=grant.chunk_bytes,
        writer=grant.writer,
        pipeline=list(grant.nodes),
        waited_s=grant.waited_s,
        granted_s_ago=now_s - grant.granted_s,
        idle=grant.is_idle,
        trickles=grant.is_idle,
        root=grant.source.root if grant.source else None,
        write_class=grant.write_class.word,
    )
