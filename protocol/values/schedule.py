"""The current writers and readers: the answer of `/v1/schedule`, made by the coordinator and read by clients.

Plain dataclasses, so that FastAPI can describe them and msgspec can decode them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueuedSet:
    """A write set with waiting chunks. `link` is the datanode whose gateway writes, None for a native client;
    `root` is the checkpoint root derived from the path; `age_s` is the age by which the policy orders sets.
    """

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
    #: blocking, due or bulk.
    write_class: str = "blocking"


@dataclass(frozen=True)
class ShownGrant:
    """A grant, identified by (epoch, number); number 0 means that it was given before this coordinator started.
    While a grant is `idle` its writer has stalled, and its capacity is used for others.
    """

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
    #: Deprecated: the old name of `idle`, for one release.
    trickles: bool
    root: str | None
    write_class: str = "blocking"


@dataclass(frozen=True)
class WaitingTimes:
    """Waiting times for the first grant, over the last thousand sets; and the time to write one chunk."""

    median_s: float
    p95_s: float
    longest_s: float
    chunk_s: float


@dataclass(frozen=True)
class CheckpointReads:
    """Readers of checkpoints: their number, chunks being read and waiting, reads per datanode, and the number of
    grants since the start (`leaves_total`).
    """

    readers: int
    chunks_read: int
    chunks_waiting: int
    longest_wait_s: float
    at_datanode: dict[str, int]
    leaves_total: int


@dataclass(frozen=True)
class Recurrence:
    """A write that comes back. `root` is a checkpoint, a unit or a directory; `write_class` is blocking, due or
    bulk.

    `period_s` is the median time between occurrences, and `spread_s` the median difference from it. `next_in_s` is
    when the next occurrence is expected. `bytes` is the median size of an occurrence, and `bytes_max` the largest
    of the last ones. `duration_s` is the median time from the first to the last write of an occurrence.
    """

    root: str
    write_class: str
    period_s: float
    spread_s: float
    next_in_s: float
    bytes: int
    bytes_max: int
    duration_s: float
    occurrences: int


@dataclass(frozen=True)
class Recurrences:
    """The recurrences that are known, those that are expected next first. `watched` is the number of roots and
    classes that are watched, including those that have not come back regularly. `waiting_share` is the share of
    the last minute in which urgent writes waited, and None if the policy does not measure it.
    """

    watched: int
    waiting_share: float | None
    recurrences: list[Recurrence]


@dataclass(frozen=True)
class ProposedPhase:
    """When a writer with a period should write: whenever the Unix time is `phase_s` more than a multiple of
    `period_s`, for the next time in `next_in_s`.
    """

    root: str
    period_s: float
    phase_s: float
    next_in_s: float


@dataclass(frozen=True)
class Schedule:
    """The state of the scheduling service. `queue` and `grants` contain only the oldest ones. The fast lane's
    totals count chunks that were too small to wait, published since the start.
    """

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
