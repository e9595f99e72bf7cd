"""The status of the cluster and its datanodes: the answers of `/v1/status` and `/v1/datanodes/...`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DiskStatus:
    """One disk of a datanode. Read-only disks are still read; replicas on failed disks count as lost."""

    directory: str
    #: working, full, read-only or failed.
    state: str
    #: Why the disk has failed; empty if it has not.
    fault: str
    capacity_bytes: int
    used_bytes: int
    replicas: int


@dataclass(frozen=True)
class SlowReason:
    """Why a part of a datanode counts as slow. `seconds` and `median` are seconds per MiB."""

    #: A value of SlowPart.
    part: str
    seconds: float
    #: The median of `compared` datanodes.
    median: float
    compared: int
    #: The number of measured chunks, and the datanodes that measured them; disks are measured by their own
    #: datanode.
    chunks: int
    measured_by: list[str]
    #: Seconds since the part became slow, and since it was last measured as slow.
    since_s: float
    found_s: float
    #: The likely cause, and what to do.
    reason: str
    advice: str


@dataclass(frozen=True)
class DatanodeStatus:
    """The coordinator's view of one datanode."""

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
    #: A value of AdminState.
    service: str
    #: Number of chunks that need another replica elsewhere before the datanode can be decommissioned.
    to_drain: int
    #: Number of those chunks whose replication exceeds the number of remaining datanodes; they block
    #: decommissioning.
    without_a_place: int
    #: Its parts that are much slower than those of other datanodes: values of SlowPart.
    slow: list[str]
    #: Seconds per MiB, measured by its predecessors in pipelines and by itself; None if unknown.
    hop_seconds: float | None
    disk_seconds: float | None
    disks: list[DiskStatus]
    #: One for each of `slow`.
    slow_reasons: list[SlowReason] = field(default_factory=list)
    #: The age of its last heartbeat, if that is at least `heartbeat_late_s`; else 0.
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
    """Chunks on datanodes that no file refers to: running writes, and remains of failed ones.

    While the GC floor is held, because the metadata was restored from a backup, none of them is deleted.
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
    #: The last journal entry on its disk, and the number of missing entries.
    applied: int
    lag: int
    #: True if it may take over.
    is_warm: bool
    #: Why it did not start, and what to do; empty if it runs.
    problem: str = ""


@dataclass(frozen=True)
class FailoverStatus:
    """This coordinator's view of the leader and of the other coordinators."""

    leads: bool
    #: The address of the leader; empty while there is none.
    leader: str
    journal_entries: int
    journal_bytes: int
    #: Number of journal entries that this coordinator is missing.
    lag: int
    coordinators: list[CoordinatorStatus]


@dataclass(frozen=True)
class ClusterStatus:
    """The status of the whole cluster."""

    cluster: str
    epoch: int
    ready: bool
    address: str
    datanodes: list[DatanodeStatus]
    chunks: ChunkCounts
    unreferenced: UnreferencedStatus
    #: Deprecated: the old name of `unreferenced`, for one release.
    unclaimed: UnreferencedStatus
    repaired_total: int
    replicas_lost_total: int
    #: Free space on the metadata disk; without any, no change is possible.
    metadata_room_bytes: int
    #: True if acknowledged changes of the metadata were lost; no change is possible until an operator accepts
    #: that.
    commits_missing: bool
    #: The state of the failover; None for a coordinator without a journal.
    failover: FailoverStatus | None = None
