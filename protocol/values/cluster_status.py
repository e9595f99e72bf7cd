"""The cluster and its datanodes at a glance: the answers of `/v1/status` and `/v1/datanodes/...`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DiskStatus:
    """One disk of a datanode. A read-only one is still read; what a failed one held counts as lost."""

    directory: str
    #: working, full, read-only or failed.
    state: str
    #: Why it does not work, if it does not.
    fault: str
    capacity_bytes: int
    used_bytes: int
    replicas: int


@dataclass(frozen=True)
class SlowReason:
    """Why a part of a datanode counts as slow, in numbers and in words. Seconds a MiB, and seconds of time."""

    #: A value of slow_peers.SlowPart.
    part: str
    seconds: float
    #: The median of so many datanodes.
    median: float
    compared: int
    #: The number of chunks it was measured by, and the datanodes that did; of a disk that is its own datanode.
    chunks: int
    measured_by: list[str]
    #: The time since it became so, and since it was last measured to be so.
    since_s: float
    found_s: float
    #: The likely cause, as far as the coordinator can tell, and what to do.
    reason: str
    advice: str


@dataclass(frozen=True)
class DatanodeStatus:
    """One datanode as the coordinator sees it."""

    node: str
    host: str
    http_port: int
    data_port: int
    rack: str
    state: str
    capacity_bytes: int
    used_bytes: int
    available_bytes: int
    replicas: int
    #: A value of membership.AdminState.
    service: str
    #: The number of chunks that still lack a replica elsewhere before it can leave.
    to_drain: int
    #: The number of these that want more replicas than there are datanodes that stay: until then it cannot leave.
    without_a_place: int
    #: Its parts that are much slower than others': values of slow_peers.SlowPart.
    slow: list[str]
    #: Seconds for a MiB, as its predecessors in pipelines and as itself measure it; None if unknown.
    hop_seconds: float | None
    disk_seconds: float | None
    disks: list[DiskStatus]
    #: One for each of `slow`.
    slow_reasons: list[SlowReason] = field(default_factory=list)
    #: The age of its last heartbeat, from heartbeat_late_s on.
    silent_s: float = 0.0


@dataclass(frozen=True)
class ChunkCounts:
    """Chunks by the state of their replication."""

    total: int
    under_replicated: int
    missing: int
    being_repaired: int


@dataclass(frozen=True)
class UnreferencedStatus:
    """Chunks on datanodes that no file refers to: writes under way, and what failed ones left.

    While the GC floor is held, because the metadata was restored from a backup, nothing of it is deleted.
    """

    chunks: int
    replicas: int
    bytes: int
    chunks_of_earlier_epochs: int
    bytes_of_earlier_epochs: int
    floor_held: bool


@dataclass(frozen=True)
class CoordinatorStatus:
    """One of the coordinators that share a journal."""

    #: Its address for clients.
    address: str
    leads: bool
    #: The last entry of the journal that is on its disk, and how many it lacks.
    applied: int
    lag: int
    #: True if it may take over.
    is_warm: bool


@dataclass(frozen=True)
class FailoverStatus:
    """The leader and the lag of the others, as this coordinator knows them."""

    leads: bool
    #: The address of who leads; empty while nobody does.
    leader: str
    journal_entries: int
    journal_bytes: int
    #: Entries that this coordinator lacks.
    lag: int
    coordinators: list[CoordinatorStatus]


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster at a glance."""

    cluster: str
    epoch: int
    ready: bool
    address: str
    datanodes: list[DatanodeStatus]
    chunks: ChunkCounts
    unreferenced: UnreferencedStatus
    #: Deprecated: the same under its old name, for one release.
    unclaimed: UnreferencedStatus
    repaired_total: int
    replicas_lost_total: int
    #: Free room on the disk of the metadata; without any nothing can be changed.
    metadata_room_bytes: int
    #: True if acknowledged changes of the metadata are missing; nothing can be changed until that is accepted.
    commits_missing: bool
    #: The state of the failover; None for a coordinator without a journal.
    failover: FailoverStatus | None = None
