"""The messages that frames carry. One struct each; the tag is the class name.

Who sends what:

    hello         connector -> Hello, acceptor -> Challenge, connector -> Proof, acceptor -> Welcome
    data plane    writer or hop -> WriteChunk, Packet...; hop -> WriteAck
                  reader -> ReadChunk; datanode -> Packet...
    control       datanode -> Register, ReportChunks, Heartbeat, AllocateChunk, CompleteFile, GetLayout,
                  ReportCorrupt, TakeLease, RenewLease, AbandonLease, StateWriteSet, StreamEnded,
                  StreamsFound;
                  coordinator -> the replies, ReplicateChunk, DeleteChunks, VerifyChunks, ReportAgain,
                  Granted, GrantRefused, AskStreams
                  client -> CreateFile, OpenFile, StateReads, and what a datanode asks of files but TakeLease
    supervision   agent -> AgentBeat; coordinator -> AgentOrders
    any           Failure

Every message may be answered by Failure, which carries a code of the error tree.
"""

from __future__ import annotations

import msgspec

from .ids import ChunkId, NodeId, Version

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all; decoded by `frames`, which refuses unknown tags and wrong types."""


# -- hello -----------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The connector's first word. `cluster` is empty when it does not know it yet."""

    version: int
    cluster: str
    role: str  # "client", "datanode", "agent" or "coordinator"
    name: str
    nonce: bytes


class Challenge(Message, frozen=True):
    """The acceptor's answer, with its proof that it knows the secret."""

    version: int
    cluster: str
    name: str
    nonce: bytes
    proof: bytes


class Proof(Message, frozen=True):
    """The connector's proof; empty from clients, who know no secret and bring tokens instead."""

    proof: bytes


class Welcome(Message, frozen=True):
    """The connection is open."""


class Failure(Message, frozen=True):
    """A refusal or fault: `code` names a class of `errors`, `culprit` the datanode it is ascribed to."""

    code: str
    message: str
    culprit: str | None = None


# -- data plane ------------------------------------------------------------------------------------


class Hop(msgspec.Struct, frozen=True, array_like=True):
    """A datanode of a pipeline and the address of its data server."""

    node: NodeId
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's word, signed, that it holds a replica on its disk."""

    node: NodeId
    mac: bytes


class WriteChunk(Message, frozen=True):
    """Opens a chunk at a hop; `onward` are the hops after it. The payload is the first packet's data.

    With `last` the chunk ends here: a small chunk is one frame down and one frame up.
    """

    token: str
    chunk: ChunkId
    version: Version
    onward: list[Hop]
    sums: bytes
    last: bool = False


class Packet(Message, frozen=True):
    """Data of a chunk in order, on block boundaries; `sums` are the packed checksums of its blocks."""

    offset: int
    sums: bytes
    last: bool = False


class WriteAck(Message, frozen=True):
    """The chunk is on the disk of the hop and of all after it, fsynced."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]
    #: What the hop waited for the one after it, which its predecessor does not hold against it.
    waited_s: float = 0.0


class ReadChunk(Message, frozen=True):
    """Asks for a range; answered by packets that begin at the block boundary at or before `offset`."""

    token: str
    chunk: ChunkId
    version: Version
    offset: int
    length: int


# -- control plane ---------------------------------------------------------------------------------


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
    #: Of what is used, what replicas need: without what compaction will give back.
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


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """What a successor, or the sender's own disk, took lately over a MiB; a smaller chunk counts as one."""

    node: NodeId
    seconds: float
    chunks: int


class StreamUnderWay(msgspec.Struct, frozen=True, array_like=True):
    """A granted chunk that is being written through these nodes; told by the first of them."""

    chunk: ChunkId
    version: Version
    nodes: list[NodeId]


class Register(Message, frozen=True):
    """A datanode comes, or comes back, with what is being written through it as the head of a pipeline.

    Followed by its ReportChunks frames.

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


class Registered(Message, frozen=True):
    """The coordinator's epoch, which the datanode remembers, and its clock, by which tokens are judged."""

    epoch: int
    clock_s: float = 0.0


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
    paces: list[Pace] = []
    disks: list[DiskReport] = []


class HeartbeatAck(Message, frozen=True):
    """Says that the coordinator is there, and what its clock shows."""

    epoch: int
    clock_s: float = 0.0


class CreateFile(Message, frozen=True, kw_only=True):
    """A client wants to write a file; asked again under the same `request_id` it is the same wish.

    Zero for `replication` or `block_bytes`, which is where the writer cuts chunks, means the cluster's default.
    """

    path: str
    user: str
    overwrite: bool = False
    permission: int = 0o644
    replication: int = 0
    block_bytes: int = 0
    create_parent: bool = True
    request_id: str = ""


class OpenFile(Message, frozen=True):
    """A client wants to read a file as it is now."""

    path: str
    user: str


class AllocateChunk(Message, frozen=True):
    """A writer wants a (further or replacing) chunk for the file of `token`; `exclude` are failed nodes.

    `written_bytes` is how many it has written before that chunk.
    """

    token: str
    exclude: list[NodeId] = []
    abandoned: ChunkId | None = None
    written_bytes: int = 0


class Allocated(Message, frozen=True):
    """Write this chunk through `pipeline` with `token`."""

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str


class Created(Message, frozen=True):
    """Leave to write a file, and its first chunk."""

    token: str
    allocated: Allocated


class StateWriteSet(Message, frozen=True):
    """What the writer of `token` still wants to write: chunks by (its own number, bytes). Answered at once by
    Scheduled, or, with `patience_s`, as soon as there is a grant within that time.

    Said again now and then while it waits, and after a reconnection: nothing is granted twice, and what was
    granted and not received comes again. A list without some of the chunks takes those back, an empty one all.
    `write_set` is the writer's name for the set, never used for another; `waited_s` how long it has waited.
    `written_bytes` is what the file of `token` has already, for its quota.
    `holding` are the grants that it has, `abandoned` those that it gave up, `exclude` the nodes that failed.
    `to_come_bytes` is what it will ask for after these chunks; negative when the writer does not know, so that it
    is estimated.
    """

    token: str
    write_set: str
    chunks: list[tuple[int, int]]
    exclude: list[NodeId] = []
    abandoned: list[ChunkId] = []
    holding: list[StreamUnderWay] = []
    waited_s: float = 0.0
    patience_s: float = 0.0
    written_bytes: int = 0
    to_come_bytes: int = -1


class GrantedChunk(msgspec.Struct, frozen=True, array_like=True):
    """Leave to write the chunk that the writer calls `index` now. Grants are numbered by (epoch, number)."""

    index: int
    epoch: int
    number: int
    allocated: Allocated


class Scheduled(Message, frozen=True):
    """The grants that a write set has and has not used, how many chunks wait, and in how many seconds the next
    of them may expect its turn."""

    grants: list[GrantedChunk]
    waiting: int
    expected_start_s: float = 0.0


class Granted(Message, frozen=True):
    """The coordinator grants a chunk of a set that was waiting."""

    write_set: str
    grant: GrantedChunk


class GrantRefused(Message, frozen=True):
    """What a set still waits for can never be granted; `code` names a class of `errors`."""

    write_set: str
    code: str
    message: str


class StreamEnded(Message, frozen=True):
    """The head of a pipeline says that a granted chunk is on all its nodes, or that it was given up."""

    chunk: ChunkId
    version: Version
    completed: bool
    length: int = 0


class AskStreams(Message, frozen=True):
    """Are these chunks being received there?"""

    chunks: list[ChunkId]


class StreamProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream is: bytes that have come, and for how long its writer was waited for, in seconds since it
    began. By the clock of the datanode it began at `begun_s` and was looked at at `seen_s`."""

    chunk: ChunkId
    received: int
    waited_s: float
    begun_s: float
    seen_s: float


class StreamsFound(Message, frozen=True):
    """Of the chunks that were asked about, those that are."""

    asked: list[ChunkId]
    found: list[StreamProgress]


class WrittenChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that its pipeline acknowledged."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]


class CompleteFile(Message, frozen=True):
    """Publish the file of `token` with these chunks, in order; with a lease's token, add them to its end.

    There they take the place of its last chunks, those in `replaced`, whose bytes they begin with.
    """

    token: str
    chunks: list[WrittenChunk]
    replaced: list[ChunkId] = []


class Completed(Message, frozen=True):
    """The file is there and will stay."""

    length: int


class FlushFile(Message, frozen=True):
    """As CompleteFile, but the writer goes on: the file of a new one's token appears, and `holder` has its lease.

    Asked again under the same `request_id` it is done once.
    """

    token: str
    chunks: list[WrittenChunk]
    holder: str
    request_id: str
    replaced: list[ChunkId] = []


class Flushed(Message, frozen=True):
    """The file is `length` bytes long and will stay so; go on with `token` and, if one was placed, this chunk."""

    token: str
    length: int
    allocated: Allocated | None = None


class TakeLease(Message, frozen=True):
    """Begin to extend the file that `token` gives leave for. Asked again by the same `holder` it is renewed."""

    token: str
    holder: str


class Leased(Message, frozen=True):
    """The right to extend a file, which is `length` bytes long, with `token`, and the first chunk for it."""

    token: str
    allocated: Allocated
    length: int
    block_bytes: int
    replication: int


class RenewLease(Message, frozen=True):
    """The holder of a lease is still there."""

    token: str


class AbandonLease(Message, frozen=True):
    """The holder of a lease gives it up; nothing of what it has written will be part of the file."""

    token: str


class GetLayout(Message, frozen=True):
    """Where the data of the file of a read token is."""

    token: str


class ChunkLayout(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a file: `length` bytes of it are used; `replicas` nearest first."""

    chunk: ChunkId
    version: Version
    length: int
    token: str
    replicas: list[Hop]


class Layout(Message, frozen=True):
    """A file's chunks in order."""

    length: int
    chunks: list[ChunkLayout]


class Opened(Message, frozen=True):
    """Leave to read a file, and where its data is."""

    token: str
    layout: Layout


class StateReads(Message, frozen=True):
    """What the reader of `token`, a checkpoint's, wants to read next: chunks by (its own number, the datanodes
    that have it, nearest first), `at_once` of them together. Answered at once by ReadsScheduled, or, with
    `patience_s`, as soon as there is leave for one within that time.

    Said again when a chunk is done, and now and then while it reads or waits, with what it is `holding`: leaves by
    (its number, where). What it neither holds nor wants is given back. `reader` is its name, never used for
    another; `waited_s` how long it has waited.
    """

    token: str
    reader: str
    wanted: list[tuple[int, list[NodeId]]]
    holding: list[tuple[int, NodeId]] = []
    at_once: int = 1
    waited_s: float = 0.0
    patience_s: float = 0.0


class ReadsScheduled(Message, frozen=True):
    """The leaves that a reader has beyond those that it holds: by (its number, where); and how many of the chunks
    that it named wait."""

    leaves: list[tuple[int, NodeId]]
    waiting: int = 0


class ReportCorrupt(Message, frozen=True):
    """A reader met a replica whose bytes fail their checksum."""

    chunk: ChunkId
    version: Version
    node: NodeId


class Done(Message, frozen=True):
    """An answer with nothing to say."""


class ReplicateChunk(Message, frozen=True):
    """Copy your replica to `pipeline`; answered by Done or Failure.

    With `bytes_per_second` it is for balancing: all such copies together are sent no faster.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str
    bytes_per_second: float = 0.0


class DeleteChunks(Message, frozen=True):
    """Drop these replicas if their version is not above the one named."""

    replicas: list[Replica]


class BalanceDisks(Message, frozen=True):
    """Even out how full your disks are, in a run of this name; answered at once by DiskBalance.

    To be said again while it is wanted. `threshold` is a share; all that is moved is written no faster than
    `bytes_per_second`. With `cancel` no more is begun.
    """

    run: str
    threshold: float
    bytes_per_second: float
    cancel: bool = False


class DiskBalance(Message, frozen=True):
    """How far the run is that is under way on a datanode, or was last; an empty name and phase for none.

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


class ReportAgain(Message, frozen=True):
    """Send a full block report: the coordinator has forgotten, or doubts, what you hold."""


# -- supervision -----------------------------------------------------------------------------------


class AgentCommand(msgspec.Struct, frozen=True):
    """A command that an agent may start: for whom besides superusers, and whether with arguments of theirs."""

    name: str
    users: list[str]
    extra_arguments: bool


class RunReport(msgspec.Struct, frozen=True):
    """A run that an agent has started. `status` is its exit status once it has ended; None if it never began."""

    query: str
    run: str
    ended: bool = False
    status: int | None = None
    last_words: str = ""


class AgentBeat(Message, frozen=True):
    """An agent says who it is and everything that it runs. `process` is drawn at its start.

    With `leaving` it is its last word: it runs nothing any more and will start nothing.
    """

    agent: str
    process: str
    host: str
    rack: str
    commands: list[AgentCommand]
    runs_max: int
    runs: list[RunReport]
    leaving: bool = False


class RunOrder(msgspec.Struct, frozen=True):
    """A run of a query that is to be: `command` of the agent's list, and the checkpoint's path for this run."""

    query: str
    run: str
    user: str
    command: str
    arguments: list[str]
    location: str


class AgentOrders(Message, frozen=True):
    """All that an agent is to run, no more and no less. `coordinator` is HOST:PORT for HTTP."""

    coordinator: str
    runs: list[RunOrder]


AnyMessage = (
    Hello
    | Challenge
    | Proof
    | Welcome
    | Failure
    | WriteChunk
    | Packet
    | WriteAck
    | ReadChunk
    | Register
    | Registered
    | ReportChunks
    | Heartbeat
    | HeartbeatAck
    | CreateFile
    | Created
    | OpenFile
    | Opened
    | AllocateChunk
    | Allocated
    | CompleteFile
    | Completed
    | FlushFile
    | Flushed
    | TakeLease
    | Leased
    | RenewLease
    | AbandonLease
    | GetLayout
    | Layout
    | ReportCorrupt
    | Done
    | ReplicateChunk
    | DeleteChunks
    | VerifyChunks
    | BalanceDisks
    | DiskBalance
    | ReportAgain
    | StateWriteSet
    | Scheduled
    | StateReads
    | ReadsScheduled
    | Granted
    | GrantRefused
    | StreamEnded
    | AskStreams
    | StreamsFound
    | AgentBeat
    | AgentOrders
)
