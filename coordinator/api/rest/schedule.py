"""REST on the scheduling service: `GET /v1/schedule`, `PUT /v1/schedule/policy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ConfigDict

from peacefs.coordinator.api.views.visible import visible_schedule
from peacefs.coordinator.limits import grant_history_s
from peacefs.coordinator.operations.read_grants import ReadGrantService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.operations.write_grants import WriteGrantService
from peacefs.coordinator.scheduling.read_scheduler import RecoveryReads
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.coordinator.scheduling.write_sets import InFlight, ScheduledSet
from peacefs.protocol.ids import show
from peacefs.protocol.values.schedule import (
    CheckpointReads,
    QueuedSet,
    Schedule,
    ShownGrant,
    WaitingTimes,
)

from .common import Body

# The maximum number of queue entries, and of grants in flight, in the answer.
schedule_entries_shown_max: Final = 200


class PolicyBody(Body):
    model_config = ConfigDict(extra="forbid")

    policy: str


def schedule_routes(
    write_grants: Callable[[], WriteGrantService],
    read_grants: Callable[[], ReadGrantService],
    for_superusers: Any,
    viewing: Any,
) -> APIRouter:
    """Return both routes. `for_superusers` guards the second; `viewing` is the dependency for the viewer."""
    router = APIRouter(prefix="/v1/schedule")

    @router.get("")
    async def schedule(viewer: Viewer = viewing) -> Schedule:
        """Return the counts, and the caller's write sets that wait or have grants. Superusers see all sets."""
        shown = described_schedule(write_grants(), read_grants())
        return visible_schedule(shown, sets_of(write_grants(), viewer), viewer)

    @router.put("/policy", dependencies=[for_superusers])
    async def policy(body: PolicyBody) -> Schedule:
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
    )
