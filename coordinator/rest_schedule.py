"""REST on the scheduling service: `GET /v1/schedule`, `PUT /v1/schedule/policy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from peacefs.protocol.ids import show
from peacefs.protocol.limits import schedule_entries_shown_max

from .read_desk import ReadDesk
from .recovery_reads import RecoveryReads
from .schedule_desk import ScheduleDesk
from .scheduled_sets import InFlight, ScheduledSet
from .scheduling import Scheduling


class QueuedSet(BaseModel):
    """A write set of which something waits. `link` is the datanode whose gateway asks, none for a client of
    ours; `root` the checkpoint root that was told from the path; `age_s` counts in the policy's order."""

    write_set: str
    link: str | None
    writer: str | None
    host: str | None
    root: str | None
    replication: int
    chunks_waiting: int
    bytes_waiting: int
    chunks_in_flight: int
    age_s: float
    expected_start_s: float


class GrantDescription(BaseModel):
    """A chunk that may be written now, by (epoch, number); one of number 0 was granted before this coordinator
    started. One that `trickles` is written so slowly by its writer that others have its room."""

    epoch: int
    number: int
    write_set: str
    chunk: str
    bytes: int
    writer: str | None
    pipeline: list[str]
    waited_s: float
    granted_s_ago: float
    trickles: bool
    root: str | None


class WaitingTimesDescription(BaseModel):
    """How long sets waited for their first grant, of the last thousand; and how long a chunk takes."""

    median_s: float
    p95_s: float
    longest_s: float
    chunk_s: float


class RecoveryDescription(BaseModel):
    """Readers of checkpoints: how many there are, how many chunks they read, how many more they have named that
    wait, who reads where, and the leaves given since the start."""

    readers: int
    chunks_read: int
    chunks_waiting: int
    longest_wait_s: float
    at_datanode: dict[str, int]
    leaves_total: int


class ScheduleDescription(BaseModel):
    """The service at a glance. Of the queue and of the grants the oldest are shown. The fast lane's are chunks
    too small to wait, published since the start."""

    policy: str
    epoch: int
    datanodes: int
    sets_waiting: int
    chunks_waiting: int
    grants_in_flight: int
    granted_total: int
    lapsed_total: int
    fast_lane_chunks_total: int
    fast_lane_bytes_total: int
    waiting_times: WaitingTimesDescription
    recovery: RecoveryDescription
    queue: list[QueuedSet]
    grants: list[GrantDescription]


class PolicyBody(BaseModel):
    """The policy that is to grant chunks from now on."""

    model_config = ConfigDict(extra="forbid")

    policy: str


def schedule_routes(
    desk: Callable[[], ScheduleDesk], recovery: Callable[[], ReadDesk], for_superusers: Any
) -> APIRouter:
    """Both routes; `for_superusers` is what the second depends on."""
    router = APIRouter(prefix="/v1/schedule")

    @router.get("")
    async def schedule() -> ScheduleDescription:
        return _described(desk(), recovery())

    @router.put("/policy", dependencies=[for_superusers])
    async def policy(body: PolicyBody) -> ScheduleDescription:
        desk().change_policy(body.policy)
        return _described(desk(), recovery())

    return router


def _described(desk: ScheduleDesk, recovery: ReadDesk) -> ScheduleDescription:
    scheduling, now_s = desk.scheduling, desk.now_s()
    queue, times = scheduling.queue, scheduling.times
    return ScheduleDescription(
        policy=scheduling.policy_name,
        epoch=scheduling.epoch,
        datanodes=scheduling.datanodes,
        sets_waiting=len(queue),
        chunks_waiting=scheduling.chunks_waiting,
        grants_in_flight=len(scheduling.grants),
        granted_total=times.granted_total,
        lapsed_total=times.lapsed_total,
        fast_lane_chunks_total=desk.fast_lane.chunks_total,
        fast_lane_bytes_total=desk.fast_lane.bytes_total,
        waiting_times=WaitingTimesDescription(
            median_s=times.quantile(0.5),
            p95_s=times.quantile(0.95),
            longest_s=times.quantile(1.0),
            chunk_s=times.grant_s,
        ),
        recovery=_recovery(recovery.reads, recovery.now_s()),
        queue=[_queued(scheduling, each, now_s) for each in queue[:schedule_entries_shown_max]],
        grants=[
            _granted(scheduling, each, now_s) for each in list(scheduling.grants)[:schedule_entries_shown_max]
        ],
    )


def _recovery(reads: RecoveryReads, now_s: float) -> RecoveryDescription:
    readers = reads.readers
    waiting = [reader for reader in readers if reader.waiting]
    return RecoveryDescription(
        readers=len(readers),
        chunks_read=sum(len(reader.leaves) for reader in readers),
        chunks_waiting=sum(reader.waiting for reader in waiting),
        longest_wait_s=max((now_s - reader.asked_s for reader in waiting if not reader.leaves), default=0.0),
        at_datanode=reads.at_node,
        leaves_total=reads.leaves_total,
    )


def _queued(scheduling: Scheduling, queued: ScheduledSet, now_s: float) -> QueuedSet:
    wish = queued.wish
    return QueuedSet(
        write_set=wish.name,
        link=wish.link,
        writer=wish.writer,
        host=wish.source.host if wish.source else None,
        root=wish.source.root if wish.source else None,
        replication=wish.replication,
        chunks_waiting=len(queued.waiting),
        bytes_waiting=sum(queued.waiting.values()),
        chunks_in_flight=len(queued.in_flight),
        age_s=now_s - queued.asked_s,
        expected_start_s=scheduling.expected_start_s(wish.name),
    )


def _granted(scheduling: Scheduling, grant: InFlight, now_s: float) -> GrantDescription:
    return GrantDescription(
        epoch=scheduling.epoch,
        number=grant.number,
        write_set=grant.write_set,
        chunk=show(grant.chunk),
        bytes=grant.chunk_bytes,
        writer=grant.writer,
        pipeline=list(grant.nodes),
        waited_s=grant.waited_s,
        granted_s_ago=now_s - grant.granted_s,
        trickles=grant.trickles,
        root=grant.source.root if grant.source else None,
    )
