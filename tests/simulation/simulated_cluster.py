"""A whole cluster in the simulated world, made of the real logic of all its parts.

Coordinator: `Cluster`, `Files` and the namespace over SQLite in memory, which outlives its crashes. Datanodes:
`ChunkStore`, `PipelineHop`, `ChunkServer`, `Orders`, over simulated disks. Clients: `write_file`, `FileReader`.
Only the shells are missing: sockets, threads, uvicorn, group commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any, TypeVar

from simulation.name_changes import Change, make_change
from simulation.world import Network, Node, SimulatedConnection, StreamMessage, Task, World

from peacefs.client.byte_stream import ByteStream
from peacefs.client.chunk_buffer import ChunkBuffer
from peacefs.client.chunk_writer import write_chunk
from peacefs.client.file_appender import append_file
from peacefs.client.file_flusher import FileFlusher
from peacefs.client.file_reader import read_whole
from peacefs.client.file_writer import write_file
from peacefs.client.grants import GrantDesk, GrantedSet, NextChunk
from peacefs.coordinator.cluster import Cluster
from peacefs.coordinator.commits import ImmediateCommit, run_now
from peacefs.coordinator.epochs import Epochs
from peacefs.coordinator.files import Files
from peacefs.coordinator.membership import State
from peacefs.coordinator.metadata import Transaction
from peacefs.coordinator.metadata_sqlite import SqliteMetadata
from peacefs.coordinator.orders import Order
from peacefs.coordinator.permissions import Callers
from peacefs.coordinator.records import RenameMode
from peacefs.coordinator.repair import Copy
from peacefs.coordinator.scheduling import Scheduling
from peacefs.coordinator.scheduling_policies import POLICY_DEFAULT
from peacefs.coordinator.workplace import Workplace
from peacefs.coordinator.writing import CreateFile
from peacefs.datanode.changes import Changes
from peacefs.datanode.chunk_server import ChunkServer
from peacefs.datanode.chunk_store import ChunkStore
from peacefs.datanode.cluster_clock import ClusterClock
from peacefs.datanode.copy_budget import CopyBudget
from peacefs.datanode.data_requests import DataRequests
from peacefs.datanode.disk import Disk
from peacefs.datanode.disk_set import DiskSet
from peacefs.datanode.orders import Orders
from peacefs.datanode.paces import Paces
from peacefs.datanode.pipeline import PipelineHop
from peacefs.datanode.replicator import Replicator
from peacefs.datanode.scrubber import Scrubber
from peacefs.datanode.streams_under_way import StreamsUnderWay
from peacefs.protocol import effects as fx
from peacefs.protocol.errors import PeacefsError, PeerError, PeerUnreachable
from peacefs.protocol.limits import (
    copy_bytes_per_second,
    heartbeat_interval_s,
    restore_epoch_jump_max,
    tick_interval_s,
    tidy_interval_s,
    write_token_lifetime_s,
)
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    Allocated,
    AskStreams,
    Completed,
    CompleteFile,
    Done,
    Failure,
    FlushFile,
    GetLayout,
    Granted,
    GrantRefused,
    Heartbeat,
    HeartbeatAck,
    Layout,
    Leased,
    Message,
    Register,
    Registered,
    RenewLease,
    ReplicateChunk,
    ReportAgain,
    ReportChunks,
    ReportCorrupt,
    StateReads,
    StateWriteSet,
    StreamEnded,
    StreamsFound,
    Usage,
    WrittenChunk,
)
from peacefs.protocol.tokens import Seal

T = TypeVar("T")
SEAL = Seal(b"the secret of the simulated cluster")
CHUNK_BYTES = 1 << 20
#: Those of every datanode.
DISKS = ("/disk-1", "/disk-2")
HOP_TIMEOUT_S = 4.0
CALL_TIMEOUT_S = 5.0
_SCRUB_PERIOD_S = 60.0
#: Where grants for all clients arrive.
DESK = GrantDesk("simulated", pushed=True)
_SCRUB_BYTES_PER_SECOND = 1 << 20


class OnLink(StreamMessage, frozen=True):
    """What a datanode says through one of its links: of those only the last that registered counts."""

    link: str
    message: Message


class Create(Message, frozen=True):
    path: str
    request_id: str
    user: str = "simulated"


class Created(Message, frozen=True):
    token: str
    allocated: Allocated


class Extend(Message, frozen=True):
    path: str
    holder: str
    user: str = "simulated"


class Truncate(Message, frozen=True):
    path: str
    length: int


class Open(Message, frozen=True):
    path: str
    user: str = "simulated"


class Opened(Message, frozen=True):
    token: str
    layout: Layout


class Delete(Message, frozen=True):
    path: str


class Move(Message, frozen=True):
    source: str
    target: str


class _Sleep:
    """What a coroutine of the real code awaits in place of asyncio's sleep."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[fx.Effect, Any, None]:
        yield fx.Sleep(self._seconds)


async def _sleep(seconds: float) -> None:
    await _Sleep(seconds)


def _copy(metadata: SqliteMetadata) -> SqliteMetadata:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    metadata._writer.backup(connection)
    return SqliteMetadata(connection, None, None)


def _fatal(fault: Exception) -> None:
    raise AssertionError(f"SQLite in memory failed: {fault}")


class SimulatedCoordinator:
    """The coordinator's node. `metadata` is on its disk; everything else is lost in a crash."""

    def __init__(self, world: World, policy: str, streams_per_node: int) -> None:
        self.world = world
        self._policy = policy
        self._streams_per_node = streams_per_node
        self.node = world.add_node("coordinator")
        self.metadata = SqliteMetadata.in_memory()
        self.tokens_live_s = write_token_lifetime_s
        self.datanodes: dict[str, SimulatedDatanode] = {}
        self.cluster: Cluster
        self.files: Files
        self.start()

    def start(self) -> None:
        world = self.world
        world.restart(self.node)
        commits = ImmediateCommit(self.metadata, _fatal)
        reader = self.metadata.reader()
        self.cluster = Cluster(world.now_s, Random(world.random.random()))
        self.epochs = Epochs(self.metadata, settled_after_s=self.tokens_live_s)
        self._links: dict[str, str] = {}
        self._tidy_at_s = 0.0

        async def commit(change: Callable[[Transaction], T]) -> T:
            return commits.submit(change).result()

        self.files = Files(
            Workplace(
                reader,
                commit,
                self.cluster,
                SEAL,
                self.epochs.numbering,
                self._send,
                Callers("simulated"),
                monotonic=lambda: world.now_s,
                wall_clock=lambda: world.wall_clock_s(self.node),
                sleep=_sleep,
            ),
            Scheduling(
                self.epochs.numbering,
                Random(world.random.random()),
                policy=self._policy,
                streams_per_node=self._streams_per_node,
            ),
        )
        self.cluster.has_room = self.files.schedule.scheduling.has_room
        self.files.administration.recall()
        self.cluster.load(reader.chunks(0, 1_000_000))
        self.cluster.loaded()
        world.coordinator = self.answer
        world.spawn(self.node, "ticking", self._keep_ticking())

    def crash(self) -> None:
        self.world.coordinator = None
        self.world.crash(self.node)

    def back_up(self) -> SqliteMetadata:
        """What `peacefs metadata backup` makes."""
        return _copy(self.metadata)

    def restore(self, backup: SqliteMetadata) -> None:
        """What `peacefs metadata restore` does, after the metadata was lost; `start` follows."""
        self.metadata = _copy(backup)
        self.metadata.hold_floor()
        self.metadata.begin_epoch(self.world.random.randint(1, restore_epoch_jump_max))

    def _keep_ticking(self) -> fx.Steps[None]:
        while True:
            ticked = self.cluster.tick(self.world.now_s, self.metadata.reader().floor())
            self._send(ticked.orders)
            for transition in ticked.transitions:
                if transition.after is State.DEAD:
                    self.files.schedule.died(transition.node)
            self.files.schedule.tick()
            self.files.recovery.tick()
            for copy in ticked.copies:
                self._start_copy(copy)
            yield from self._reclaim()
            if self.world.now_s >= self._tidy_at_s:
                self._tidy_at_s = self.world.now_s + tidy_interval_s
                self._raise_floor()
            yield from fx.sleep(tick_interval_s)

    def _raise_floor(self) -> None:
        floor = self.epochs.settled(self.world.now_s)
        if floor is not None:
            run_now(self.metadata, lambda tx: tx.raise_floor(floor))

    def _reclaim(self) -> fx.Steps[None]:
        self.world.spawn(self.node, "reclaiming", self.files.names.reclaim())
        yield from ()

    def _start_copy(self, copy: Copy) -> None:
        target = self.cluster.hop(copy.target)
        assert target is not None
        token = self.files.writing.write_token(copy.chunk, copy.version, [copy.target])
        order = ReplicateChunk(copy.chunk, copy.version, [target], token, copy.bytes_per_second)
        cluster, schedule = self.cluster, self.files.schedule
        schedule.copy_begins(copy.chunk, copy.source, copy.target)

        def finished(reply: Message) -> None:
            schedule.copy_ended(copy.chunk)
            cluster.answered(copy, copied=isinstance(reply, Done))

        self.datanodes[copy.source].order(order, finished)

    def _send(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order.message, Granted | GrantRefused):
                self._push(order.message)
            else:
                self.datanodes[order.node].order(order.message, lambda _reply: None)

    def _push(self, message: Granted | GrantRefused) -> None:
        """To a client; it may be lost, or come twice."""
        for _ in range(self.world.random.choice((1, 1, 1, 2))):
            if not self.world.loses():
                self.world.later(self.world.transit_s(), lambda: DESK.deliver(message))

    async def answer(self, caller: str, message: Message) -> Message:
        """What `node_link` and the fronts do with a message."""
        try:
            return await self._answer(caller, message)
        except PeacefsError as error:
            return Failure(error.code, error.message, error.culprit)

    async def _answer(self, caller: str, message: Message) -> Message:
        now_s = self.world.now_s
        match message:
            case OnLink(message=Register()):
                self._links[caller] = message.link
                return await self._answer(caller, message.message)
            case OnLink():
                is_current = self._links.get(caller) == message.link
                return await self._answer(caller, message.message) if is_current else ReportAgain()
            case Change():
                await make_change(self.files, message)
                return Done()
            case Register():
                self.epochs.accept(message.node, message.epoch_seen)
                self.cluster.register(now_s, message)
                self.files.schedule.registered(message.node, message.streams)
                return Registered(self.epochs.numbering.epoch, self.world.wall_clock_s(self.node))
            case ReportChunks() | Heartbeat():
                heard = self.cluster.report if isinstance(message, ReportChunks) else self.cluster.heartbeat
                orders = heard(now_s, caller, message)
                if any(isinstance(order.message, ReportAgain) for order in orders):
                    return ReportAgain()
                self._send(orders)
                if isinstance(message, ReportChunks):
                    return Done()
                return HeartbeatAck(self.epochs.numbering.epoch, self.world.wall_clock_s(self.node))
            case AllocateChunk():
                return await self.files.writing.allocate(message, None)
            case StateWriteSet():
                return await self.files.schedule.state(message, caller, None)
            case StateReads():
                return await self.files.recovery.state(message)
            case StreamEnded():
                return self.files.schedule.ended(caller, message)
            case StreamsFound():
                return self.files.schedule.found(caller, message)
            case CompleteFile():
                return await self.files.writing.complete(message)
            case FlushFile():
                return await self.files.writing.flush(message, None)
            case Extend():
                return await self.files.appending.extend(message.path, message.user, message.holder, None)
            case RenewLease():
                return await self.files.appending.renew(message)
            case AbandonLease():
                return await self.files.appending.abandon(message)
            case Truncate():
                await self.files.reshaping.truncate(message.path, message.length, "simulated")
                return Done()
            case GetLayout():
                return await self.files.reading.layout(message, None)
            case ReportCorrupt():
                return await self.files.reading.report_corrupt(message)
            case Create():
                wanted = CreateFile(
                    message.path, message.user, True, block_bytes=CHUNK_BYTES, request_id=message.request_id
                )
                ticket = await self.files.writing.create(wanted)
                return Created(ticket.token, ticket.allocated)
            case Open():
                token, layout, _status = await self.files.reading.open_direct(message.path, message.user, None)
                return Opened(token, layout)
            case Delete():
                await self.files.names.delete(message.path, True, "simulated")
                return Done()
            case Move():
                await self.files.names.rename(message.source, message.target, "simulated", RenameMode.STRICT)
                return Done()
            case _:
                raise AssertionError(f"nobody answers {type(message).__name__}")


class SimulatedDatanode:
    """A datanode's node and what runs on it."""

    def __init__(self, world: World, name: str, rack: str, copy_rate: float) -> None:
        self.world = world
        self.node = world.add_node(name)
        self.rack = rack
        self._copy_rate = copy_rate
        self.address = (f"{name}.simulated", 9866)
        self.store: DiskSet
        self.capacity_bytes = 1 << 40
        #: On its disk: what identity.json remembers.
        self.epoch_seen = 0
        self.start()

    def start(self) -> None:
        world, node = self.world, self.node
        world.restart(node)
        changes = Changes()
        clock = ClusterClock(lambda: world.now_s, lambda: world.wall_clock_s(node))
        node.clock = clock.now_s
        paces = self._paces = Paces()
        disks = [
            Disk(
                directory,
                ChunkStore(
                    directory,
                    0,
                    available_bytes=lambda: 1 << 40,
                    rng=Random(world.random.random()),
                    on_lost=changes.removed,
                ),
            )
            for directory in DISKS
        ]
        self.store = DiskSet(disks, rng=Random(world.random.random()), on_lost=changes.removed)
        self.streams = StreamsUnderWay(node.name)
        hop = PipelineHop(node.name, SEAL, self.store, changes, self.streams, paces, hop_timeout_s=HOP_TIMEOUT_S)
        server = ChunkServer(SEAL, self.store, changes, reader_timeout_s=HOP_TIMEOUT_S)
        requests = DataRequests(hop, server)
        budget = CopyBudget(self._copy_rate)
        replicator = Replicator(self.store, changes, budget=budget, hop_timeout_s=HOP_TIMEOUT_S)
        self._orders = Orders(self.store, changes, replicator)

        def serve(connection: SimulatedConnection) -> fx.Steps[None]:
            return requests.serve_connection(connection)

        def live() -> fx.Steps[None]:
            for directory in DISKS:
                yield from fx.make_directory(directory)
            yield from fx.sync_directory("/")
            yield from self.store.recover()
            world.spawn(node, "scrubbing", self._keep_scrubbing(changes))
            node.listeners[self.address] = serve
            while True:
                try:
                    yield from self._stay_registered(changes, clock)
                except PeerError:
                    yield from fx.sleep(0.5)

        world.spawn(node, "living", live())
        world.spawn(node, "compacting", self._keep_compacting())

    def _keep_compacting(self) -> fx.Steps[None]:
        yield from fx.sleep(5.0)
        while True:
            yield from self.store.compact()
            yield from fx.sleep(5.0)

    def _keep_scrubbing(self, changes: Changes) -> fx.Steps[None]:
        scrubber = Scrubber(
            self.store,
            DISKS[0],
            changes.corrupt,
            period_s=_SCRUB_PERIOD_S,
            bytes_per_second=_SCRUB_BYTES_PER_SECOND,
        )
        while True:
            rest_s = yield from scrubber.advance()
            yield from fx.sleep(rest_s)

    def crash(self) -> None:
        self.world.crash(self.node)

    def order(self, order: Message, answered: Callable[[Message], None]) -> None:
        """Obeyed by the real `Orders`; an order for a node that is down is lost, and so may be any. Then the
        connection is found broken, in time."""
        world = self.world
        lost = Failure(PeerUnreachable.__name__, f"the connection to {self.node.name} broke")

        def arrive() -> None:
            if not self.node.up:
                answered(lost)
            elif isinstance(order, AskStreams):
                world.spawn(self.node, "answering", self._answer_about_streams(order))
            else:
                task = world.spawn(self.node, type(order).__name__, self._orders.obey(order))
                world.when_done(task, lambda done: answered(lost if done.error is not None else done.result))

        for _ in range(world.times()):
            if self.node.up and not world.loses():
                world.later(world.transit_s(), arrive)
            else:
                world.later(CALL_TIMEOUT_S, lambda: answered(lost))

    def usage(self) -> Usage:
        used = self.store.usage()
        room = self.capacity_bytes - used.used_bytes
        return Usage(self.capacity_bytes, used.used_bytes, room, live_bytes=used.live_bytes)

    def _answer_about_streams(self, question: AskStreams) -> fx.Steps[None]:
        with contextlib.suppress(PeacefsError):
            yield from fx.call(self.streams.find(question, self.world.now_s), Done, timeout_s=CALL_TIMEOUT_S)

    def _stay_registered(self, changes: Changes, clock: ClusterClock) -> fx.Steps[None]:
        """What `CoordinatorLink` does, without its threads."""
        registration = Register(
            self.node.name,
            *self.address,
            *self.address,
            self.rack,
            self.usage(),
            self.epoch_seen,
            streams=list(self.streams.headed_here()),
        )
        link = f"{self.node.name}-{self.world.now_s}"
        registered = yield from fx.call(OnLink(link, registration), Registered, timeout_s=CALL_TIMEOUT_S)
        self.epoch_seen = max(self.epoch_seen, registered.epoch)
        self.streams.registered(registered.epoch)
        clock.heard(registered.clock_s)
        changes.forget()
        report = ReportChunks(list(self.store.replicas()), last=True)
        yield from fx.call(OnLink(link, report), Done, timeout_s=CALL_TIMEOUT_S)
        while True:
            beat = Heartbeat(
                self.usage(), *changes.take(), self._paces.lately(self.world.now_s), self.store.reports()
            )
            ack = yield from fx.call(OnLink(link, beat), HeartbeatAck, timeout_s=CALL_TIMEOUT_S)
            clock.heard(ack.clock_s)
            yield from fx.sleep(heartbeat_interval_s)


class SimulatedCluster:
    """A coordinator, datanodes in two racks, and clients."""

    def __init__(
        self,
        seed: int,
        *,
        datanodes: int = 4,
        lose: float = 0.0,
        network: Network | None = None,
        copy_rate: float = copy_bytes_per_second,
        policy: str = POLICY_DEFAULT,
        streams_per_node: int = 2,
    ) -> None:
        self.world = World(seed, network or Network(lose))
        self.coordinator = SimulatedCoordinator(self.world, policy, streams_per_node)
        for _ in range(datanodes):
            self.add_datanode(copy_rate)

    def add_datanode(self, copy_rate: float = copy_bytes_per_second) -> SimulatedDatanode:
        """A new one, with nothing on it; racks by turns."""
        number = len(self.coordinator.datanodes)
        name = f"dn-{number + 1}"
        datanode = SimulatedDatanode(self.world, name, f"/rack-{number % 2}", copy_rate)
        self.coordinator.datanodes[name] = datanode
        return datanode

    @property
    def datanodes(self) -> list[SimulatedDatanode]:
        return list(self.coordinator.datanodes.values())

    def client(self, name: str) -> Node:
        return self.world.add_node(name)

    def start(self, node: Node, what: str, steps: fx.Steps[Any]) -> Task:
        return self.world.spawn(node, what, steps)

    def until_ready(self) -> None:
        alive = len(self.datanodes)
        assert self.world.run(
            lambda: (
                self.coordinator.cluster.ready(self.world.now_s)
                and len(self.coordinator.cluster.members.alive()) == alive
            ),
            limit_s=60.0,
        )

    def fully_replicated(self) -> bool:
        chunks = self.coordinator.cluster.chunks
        return not chunks.under and not chunks.missing and not chunks.over


def write(path: str, data: bytes, request_id: str, user: str = "simulated") -> fx.Steps[None]:
    """A client writes a file."""
    yield from write_from(path, ByteStream.of(data), request_id, user)


def write_from(path: str, source: ByteStream, request_id: str = "", user: str = "simulated") -> fx.Steps[None]:
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    yield from write_file(
        created.token,
        created.allocated,
        source,
        block_bytes=CHUNK_BYTES,
        desk=DESK,
        hop_timeout_s=HOP_TIMEOUT_S,
    )


def stated(path: str, data: bytes, request_id: str, user: str = "simulated") -> fx.Steps[None]:
    """A client states all chunks of a file up front, and writes each when it is granted."""
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    grants = GrantedSet(DESK, created.token, {index: len(part) for index, part in enumerate(parts)})
    written: dict[int, WrittenChunk] = {}
    failed: list[str] = []
    try:
        while (granted := (yield from grants.next())) is not None:
            written[granted.index] = yield from _write_granted(grants, granted, parts[granted.index], failed)
            grants.written(granted.index)
    except PeacefsError:
        yield from grants.give_back()
        raise
    chunks = [written[index] for index in range(len(parts))]
    yield from fx.call(CompleteFile(created.token, chunks), Completed, timeout_s=CALL_TIMEOUT_S)


def _write_granted(
    grants: GrantedSet, granted: NextChunk, part: bytes, failed: list[str]
) -> fx.Steps[WrittenChunk]:
    def again(nodes: list[str], abandoned: int | None) -> fx.Steps[Allocated]:
        given_up = [abandoned] if abandoned is not None else []
        return (yield from grants.again(granted.index, len(part), nodes, given_up))

    buffer = ChunkBuffer(ByteStream.of(part), CHUNK_BYTES)
    return (yield from write_chunk(granted.allocated, buffer, again, failed, hop_timeout_s=HOP_TIMEOUT_S))


def append(path: str, data: bytes, holder: str, user: str = "simulated") -> fx.Steps[None]:
    """A client extends a file."""
    yield from append_from(path, ByteStream.of(data), holder, user)


def flusher(path: str, request_id: str, holder: str, user: str = "simulated") -> fx.Steps[FileFlusher]:
    """A new file that its writer is to flush."""
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    return FileFlusher(created.token, created.allocated, CHUNK_BYTES, holder, DESK, hop_timeout_s=HOP_TIMEOUT_S)


def append_from(path: str, source: ByteStream, holder: str, user: str = "simulated") -> fx.Steps[None]:
    leased = yield from fx.call(Extend(path, holder, user), Leased, timeout_s=CALL_TIMEOUT_S)
    yield from append_file(leased, source, block_bytes=leased.block_bytes, desk=DESK, hop_timeout_s=HOP_TIMEOUT_S)


def truncate(path: str, length: int) -> fx.Steps[None]:
    yield from fx.call(Truncate(path, length), Done, timeout_s=CALL_TIMEOUT_S)


def read(path: str, user: str = "simulated") -> fx.Steps[bytes]:
    """A client reads a file."""
    opened = yield from fx.call(Open(path, user), Opened, timeout_s=CALL_TIMEOUT_S)
    return (yield from read_whole(opened.token, opened.layout, hop_timeout_s=HOP_TIMEOUT_S))


def delete(path: str) -> fx.Steps[None]:
    yield from fx.call(Delete(path), Done, timeout_s=CALL_TIMEOUT_S)


def move(source: str, target: str) -> fx.Steps[None]:
    yield from fx.call(Move(source, target), Done, timeout_s=CALL_TIMEOUT_S)


def change(wanted: Change) -> fx.Steps[None]:
    """A client changes the namespace."""
    yield from fx.call(wanted, Done, timeout_s=CALL_TIMEOUT_S)
