"""Messages between a datanode and the coordinator: reports of itself and its replicas, and orders."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version

from .base import Message
from .chunks import Hop
from .grants import StreamUnderWay


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """One replica as a datanode reports it."""

    chunk: ChunkId
    version: Version
    length: int


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's disk and load."""

    capacity_bytes: int
    used_bytes: int
    available_bytes: int
    streams: int = 0
    #: The part of the used bytes that replicas need, without what compaction will give back.
    live_bytes: int = 0


class DiskReport(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's disk: `state` is a value of `datanode.disk.DiskState`, or "full"; `fault` says why it is not
    working."""

    directory: str
    state: str
    fault: str
    capacity_bytes: int
    used_bytes: int
    replicas: int


class LatencySample(msgspec.Struct, frozen=True, array_like=True):
    """The recent time for a MiB at a successor, or at the sender's own disk; a smaller chunk counts as one."""

    node: NodeId
    seconds: float
    chunks: int


class Register(Message, frozen=True):
    """A datanode comes, or comes back, with what is being written through it as the head of a pipeline.

    Followed by its ReportChunks frames.

    `proof` is made for this connection, with the private half of `public_key`, the datanode's credential.

    `process` tells a process that comes back from another that has the same id, because its directory is a copy.
    """

    node: NodeId
    data_host: str
    data_port: int
    http_host: str
    http_port: int
    rack: str
    usage: Usage
    epoch_seen: int = 0
    process: str = ""
    streams: list[StreamUnderWay] = []
    #: The highest `HeartbeatAck.commit` that the datanode has heard.
    commit_seen: int = 0
    public_key: bytes = b""
    proof: bytes = b""


class TrustedKey(msgspec.Struct, frozen=True, array_like=True):
    """The public half of a key that signs callers' tokens. It verifies until `ends_s`; 0: without an end."""

    number: int
    public: bytes
    ends_s: float = 0.0


class Trust(msgspec.Struct, frozen=True):
    """All that a gateway needs to verify its callers: it asks nobody.

    Where `is_required` is False names are believed.
    """

    is_required: bool = False
    keys: list[TrustedKey] = []
    #: Ids of tokens that end before their time.
    revoked: list[str] = []


class Registered(Message, frozen=True):
    """The coordinator's epoch, which the datanode remembers, and its clock, by which tokens are judged.

    From a standby, which does not lead, the epoch is that of the leader as far as it knows.
    """

    epoch: int
    clock_s: float = 0.0
    trust: Trust = Trust()
    leads: bool = True


class ReportChunks(Message, frozen=True):
    """A part of a full block report; `last` closes it."""

    replicas: list[Replica]
    last: bool


class Heartbeat(Message, frozen=True):
    """Sent every second, and at once when something changed."""

    usage: Usage
    added: list[Replica] = []
    removed: list[Replica] = []
    corrupt: list[Replica] = []
    samples: list[LatencySample] = msgspec.field(default=[], name="paces")
    disks: list[DiskReport] = []
    #: The highest epoch of a leader that it has heard: it obeys none below.
    epoch: int = 0
    #: After it has heard a new one: the streams whose head it is.
    streams: list[StreamUnderWay] | None = None
    #: It is being stopped: whoever is led to it from now on comes too late.
    stopping: bool = False


class HeartbeatAck(Message, frozen=True):
    """Says that the coordinator is there, what its clock shows, and the number of its last durable commit.

    `trust` is there when it has changed. Also sent at once, unasked, when it changes and by a coordinator that
    begins to lead.
    """

    epoch: int
    clock_s: float = 0.0
    commit: int = 0
    trust: Trust | None = None
    leads: bool = True


class ReplicateChunk(Message, frozen=True):
    """Copy your replica to `pipeline`; answered by Done or Failure.

    With `bytes_per_second` it is for balancing: all such copies together are sent no faster. `epoch`, of every
    order, is that of the leader that orders it.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str
    bytes_per_second: float = 0.0
    epoch: int = 0


class DeleteChunks(Message, frozen=True):
    """Drop these replicas if their version is not above the one named."""

    replicas: list[Replica]
    epoch: int = 0


class BalanceDisks(Message, frozen=True):
    """Even out how full your disks are, in a run of this name; answered at once by DiskBalance.

    To be said again while it is wanted. `threshold` is a share; all that is moved is written no faster than
    `bytes_per_second`. With `cancel` no more is begun.
    """

    run: str
    threshold: float
    bytes_per_second: float
    cancel: bool = False
    epoch: int = 0


class DiskBalance(Message, frozen=True):
    """The progress of the current or last run on a datanode; an empty name and phase for none.

    `phase` is a value of `datanode.disk_balancer.Phase`. `bytes_left` have to be moved at least until no disk is
    further from the mean than the threshold.
    """

    run: str
    phase: str
    bytes_moved: int
    bytes_left: int
    moved: int
    failed: int


class VerifyChunks(Message, frozen=True):
    """Read these replicas back; the next heartbeat names those that are corrupt."""

    replicas: list[Replica]
    epoch: int = 0


class ReplicaChallenge(msgspec.Struct, frozen=True, array_like=True):
    """A replica, and a nonce that was drawn for this question."""

    chunk: ChunkId
    version: Version
    nonce: bytes


class ProveReplicas(Message, frozen=True):
    """Show that you hold these replicas; answered by ReplicasProven."""

    challenges: list[ReplicaChallenge]
    epoch: int = 0


class ReplicaProof(msgspec.Struct, frozen=True, array_like=True):
    """Digests of nonce and content, and of nonce and the checksums that are stored with it.

    That of the content is empty if it cannot be read or fails its checksums; both, if there is nothing.
    """

    chunk: ChunkId
    version: Version
    content: bytes
    sums: bytes


class ReplicasProven(Message, frozen=True):
    """A proof for each replica that was asked for and of which something is there, in that version."""

    proofs: list[ReplicaProof]


class ReportAgain(Message, frozen=True):
    """Send a full block report: the coordinator has forgotten, or doubts, what you hold."""
