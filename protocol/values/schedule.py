"""The answer of `/v1/schedule`, writers and readers now: the coordinator fills it in, clients read it.

Plain dataclasses, which FastAPI describes and msgspec decodes: what is told is said here once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueuedSet:
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


@dataclass(frozen=True)
class ShownGrant:
    """A chunk that may be written now, by (epoch, number); one of number 0 was granted before this coordinator
    started. While one is `idle` its writer stalls, and others have its room."""

    epoch: int
    number: int
    write_set: str
    chunk: str
    bytes: int
    writer: str | None
    pipeline: list[str]
    waited_s: float
    granted_s_ago: float
    idle: bool
    #: Deprecated: the same under its old name, for one release.
    trickles: bool
    root: str | None


@dataclass(frozen=True)
class WaitingTimes:
    """The waits of the last thousand sets for their first grant; and the time that a chunk takes."""

    median_s: float
    p95_s: float
    longest_s: float
    chunk_s: float


@dataclass(frozen=True)
class CheckpointReads:
    """Readers of checkpoints: how many there are, how many chunks they read, how many more they have named that
    wait, who reads where, and the grants since the start."""

    readers: int
    chunks_read: int
    chunks_waiting: int
    longest_wait_s: float
    at_datanode: dict[str, int]
    leaves_total: int


@dataclass(frozen=True)
class Schedule:
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
    waiting_times: WaitingTimes
    recovery: CheckpointReads
    queue: list[QueuedSet]
    grants: list[ShownGrant]
