"""Messages between a datanode and the coordinator: reports of itself and its replicas, and orders."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version

from .base import Message
from .chunks import Hop
from .grants import StreamUnderWay


class Replica(msgspec.Struct, frozen=True, array_like=True):
    chunk: ChunkId
    version: Version
    length: int


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's disk and load."""

    capacity_bytes: int
    used_bytes: int
    available_bytes: int
    streams: int = 0
    #: The used bytes without those that compaction will free.
    live_bytes: int = 0


class DiskReport(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's disk. `state` is a value of DiskState, or "full"; `fault` is empty unless the disk has
    failed.
    """

    directory: str
    state: str
    fault: str
    capacity_bytes: int
    used_bytes: int
    replicas: int


class LatencySample(msgspec.Struct, frozen=True, array_like=True):
    """The recent time per MiB at a successor or at the sender's own disk. Smaller chunks count as 1 MiB."""

    node: NodeId
    seconds: float
    chunks: int


class Register(Message, frozen=True):
    """A datanode registers, for the first time or again. Followed by its ReportChunks frames.

    `streams` are the chunks being written through pipelines that it heads. `proof` is a signature for this
    connection with the private half of `public_key`, the datanode's credential. `process` distinguishes a process
    that reconnects from another one with the same id, whose directory is a copy.
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
    #: The highest `HeartbeatAck.commit` that the datanode has received.
    commit_seen: int = 0
    public_key: bytes = b""
    proof: bytes = b""
    #: The port of HDFS's data transfer protocol and of its ClientDatanodeProtocol; 0 without them.
    hdfs_port: int = 0


class TrustedKey(msgspec.Struct, frozen=True, array_like=True):
    """The public half of a key that signs callers' tokens. It is valid until `ends_s`; 0 means no end."""

    number: int
    public: bytes
    ends_s: float = 0.0


class Trust(msgspec.Struct, frozen=True):
    """Everything that a gateway needs to verify its callers.

    If `is_required` is False, user names are trusted without a token.
    """

    is_required: bool = False
    keys: list[TrustedKey] = []
    #: Ids of revoked tokens.
    revoked: list[str] = []


class Registered(Message, frozen=True):
    """The answer to Register: the coordinator's epoch, and its clock, with which expiry times are compared.

    A standby sends `leads` False and the leader's epoch, as far as it knows.
    """

    epoch: int
    clock_s: float = 0.0
    trust: Trust = Trust()
    leads: bool = True


class ReportChunks(Message, frozen=True):
    """A part of a full block report; `last` marks the last part."""

    replicas: list[Replica]
    last: bool


class Heartbeat(Message, frozen=True):
    """Sent once per second, and at once when something has changed."""

    usage: Usage
    added: list[Replica] = []
    removed: list[Replica] = []
    corrupt: list[Replica] = []
    samples: list[LatencySample] = msgspec.field(default=[], name="paces")
    disks: list[DiskReport] = []
    #: The highest epoch of a leader that the datanode has received. It ignores orders with lower ones.
    epoch: int = 0
    #: The streams of which it is the head; sent after it has received a new epoch.
    streams: list[StreamUnderWay] | None = None
    #: True if the datanode is stopping and clients must not be redirected to it.
    stopping: bool = False


class HeartbeatAck(Message, frozen=True):
    """The answer to a heartbeat: the coordinator's epoch, clock and last durable commit.

    `trust` is included if it has changed. Also sent unasked when `trust` changes, and by a coordinator that begins
    to lead.
    """

    epoch: int
    clock_s: float = 0.0
    commit: int = 0
    trust: Trust | None = None
    leads: bool = True


class ReplicateChunk(Message, frozen=True):
    """Order to copy a replica to `pipeline`; answered by Done or Failure.

    `bytes_per_second`, if not 0, is for balancing and limits the total rate of all such copies. `epoch`, here and
    in all orders, is the epoch of the leader.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str
    bytes_per_second: float = 0.0
    epoch: int = 0


class DeleteChunks(Message, frozen=True):
    """Order to delete these replicas, unless their version is newer than the one given."""

    replicas: list[Replica]
    epoch: int = 0


class BalanceDisks(Message, frozen=True):
    """Order to balance the datanode's disks, in a run of this name; answered at once by DiskBalance.

    Must be repeated to keep the run going. `threshold` is a share; `bytes_per_second` limits the total rate of
    moves. With `cancel`, no further move is started.
    """

    run: str
    threshold: float
    bytes_per_second: float
    cancel: bool = False
    epoch: int = 0


class DiskBalance(Message, frozen=True):
    """The progress of the current or last run on a datanode; name and phase are empty if there was none.

    `phase` is a value of BalancePhase. `bytes_left` is the minimum to be moved until all disks are within the
    threshold.
    """

    run: str
    phase: str
    bytes_moved: int
    bytes_left: int
    moved: int
    failed: int


class VerifyChunks(Message, frozen=True):
    """Order to verify these replicas; the next heartbeat reports the corrupt ones."""

    replicas: list[Replica]
    epoch: int = 0


class ReplicaChallenge(msgspec.Struct, frozen=True, array_like=True):
    """A replica, and a random nonce for this challenge."""

    chunk: ChunkId
    version: Version
    nonce: bytes


class ProveReplicas(Message, frozen=True):
    """Request proof that the datanode holds these replicas; answered by ReplicasProven."""

    challenges: list[ReplicaChallenge]
    epoch: int = 0


class ReplicaProof(msgspec.Struct, frozen=True, array_like=True):
    """Two digests, of the nonce with the replica's content, and of the nonce with its stored checksums.

    The first is empty if the content cannot be read or fails its checksums. Both are empty if there is no replica.
    """

    chunk: ChunkId
    version: Version
    content: bytes
    sums: bytes


class ReplicasProven(Message, frozen=True):
    """Proofs for those requested replicas that the datanode has, at least in part, in that version."""

    proofs: list[ReplicaProof]


class ReportAgain(Message, frozen=True):
    """Order to send a full block report, because the coordinator's knowledge is missing or in doubt."""
