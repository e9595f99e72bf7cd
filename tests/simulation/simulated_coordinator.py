"""The coordinator in the simulated world: `Cluster`, `Files` and the namespace over SQLite in memory.

The metadata outlives its crashes. Only the shells are missing: sockets, uvicorn, and the thread of group commit,
for which `writer_thread` stands.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from simulation.client_requests import (
    BeginRun,
    Create,
    Created,
    Delete,
    Extend,
    ListNames,
    Move,
    Names,
    OnLink,
    Open,
    Opened,
    RunBegun,
    Truncate,
)
from simulation.drop_watch import DropWatch
from simulation.lying_datanode import LyingDatanode
from simulation.metadata_watch import QuotaWatch, check_sound
from simulation.name_changes import Change, make_change
from simulation.simulated_datanode import SimulatedDatanode
from simulation.terms import CHUNK_BYTES, GRANT_CLIENT, SIGNER
from simulation.world import World
from simulation.writer_thread import WriterThread

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import State
from peacefs.coordinator.cluster.possession import Question
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.model import InodeKind, RenameMode
from peacefs.coordinator.metadata.sqlite.store import SqliteMetadata
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.copy import CopyOperations
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.write import CreateFile
from peacefs.coordinator.rpc import dispatch as calls
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.protocol import messages
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import (
    list_page_entries,
    restore_epoch_jump_max,
    tick_interval_s,
    tidy_interval_s,
    unreferenced_chunk_kept_s,
)
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    Done,
    Failure,
    FlushFile,
    GetLayout,
    Granted,
    GrantRefused,
    Heartbeat,
    HeartbeatAck,
    KeepChunks,
    Message,
    PublishFile,
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
)
from peacefs.protocol.runtime import effects as fx

#: So that copies of small trees take several commits.
_COPIED_PER_COMMIT = 2
_TRASH_LOOK_S = 10.0


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
    return SqliteMetadata(connection)


class SimulatedCoordinator:
    """The coordinator's node. `metadata` is on its disk; everything else is lost in a crash."""

    def __init__(self, world: World, policy: str, streams_per_node: int, trash_minutes: int = 0) -> None:
        self.world = world
        self._trash_minutes = trash_minutes
        self._policy = policy
        self._streams_per_node = streams_per_node
        self.node = world.add_node("coordinator")
        self.metadata = SqliteMetadata.in_memory()
        self.tokens_live_s = unreferenced_chunk_kept_s
        self.datanodes: dict[str, SimulatedDatanode] = {}
        self.liars: dict[str, LyingDatanode] = {}
        self.cluster: Cluster
        self.files: Files
        self.start()

    def start(self) -> None:
        """Finds the metadata as the last crash left it: whatever was under way, they are sound."""
        world = self.world
        world.restart(self.node)
        check_sound(self.metadata)
        self.quotas = QuotaWatch(self.metadata)
        writer = WriterThread(
            self.metadata, Random(world.random.random()), lambda: world.now_s, _sleep, self.quotas.look
        )
        reader = writer.reader()
        self.cluster = Cluster(world.now_s, Random(world.random.random()))
        self.epochs = Epochs(self.metadata, world.now_s, settled_after_s=self.tokens_live_s)
        self._drops = DropWatch(self.liars)
        self._links: dict[str, str] = {}
        self._tidy_at_s = 0.0

        self._commit = writer.commit
        context = OperationContext(
            reader,
            writer.commit,
            self.cluster,
            SIGNER,
            self.epochs.numbering,
            self._send,
            Callers("simulated"),
            monotonic=lambda: world.now_s,
            wall_clock=lambda: world.wall_clock_s(self.node),
            sleep=_sleep,
        )
        self.files = Files(
            context,
            Scheduling(
                self.epochs.numbering,
                Random(world.random.random()),
                policy=self._policy,
                streams_per_node=self._streams_per_node,
            ),
            self._trash_minutes,
        )
        self.files.copying = CopyOperations(context, self.files.names, _COPIED_PER_COMMIT)
        self.cluster.has_room = self.files.schedule.scheduling.has_room
        self.cluster.granted_pipelines = self.files.schedule.scheduling.pipelines
        self.files.administration.recall()
        self.cluster.load(reader.chunks(0, 1_000_000))
        self.cluster.loaded()
        world.coordinator = self.answer
        world.spawn(self.node, "ticking", self._keep_ticking())
        world.spawn(self.node, "emptying the trash", self._keep_emptying_trash())

    def crash(self) -> None:
        self.world.coordinator = None
        self.world.crash(self.node)

    def back_up(self) -> SqliteMetadata:
        """What `peacefs metadata backup` makes."""
        return _copy(self.metadata)

    def restore(self, backup: SqliteMetadata) -> None:
        """What `peacefs metadata restore` does, after the metadata was lost; `start` follows."""
        self.metadata = _copy(backup)
        self.metadata.hold_gc_floor()
        drawn = self.metadata.begin_epoch()
        self.metadata.begin_epoch(drawn + self.world.random.randint(1, restore_epoch_jump_max))

    def _keep_ticking(self) -> fx.Steps[None]:
        while True:
            ticked = self.cluster.tick(self.world.now_s, self.epochs.garbage)
            self._send(ticked.orders)
            for transition in ticked.transitions:
                if transition.after is State.DEAD:
                    self.files.schedule.died(transition.node)
            self.files.schedule.tick()
            self.files.recovery.tick()
            for copy in ticked.copies:
                self._start_copy(copy)
            for question in ticked.questions:
                self._ask_for_proof(question)
            yield from self._raise_gc_floor().__await__()
            yield from self.files.names.reclaim().__await__()
            self.files.appending.delete_deferred()
            if self.world.now_s >= self._tidy_at_s:
                self._tidy_at_s = self.world.now_s + tidy_interval_s
                yield from self.files.names.forget_answers().__await__()
            yield from fx.sleep(tick_interval_s)

    async def _raise_gc_floor(self) -> None:
        change = self.epochs.advance(self.world.now_s)
        if change is not None:
            self.epochs.advanced(await self._commit(change))

    def _keep_emptying_trash(self) -> fx.Steps[None]:
        yield from self.files.trash.prepare().__await__()
        while True:
            yield from fx.sleep(_TRASH_LOOK_S)
            yield from self.files.trash.empty().__await__()

    def _start_copy(self, copy: ReplicaCopy) -> None:
        target = self.cluster.hop(copy.target)
        assert target is not None
        token = self.files.writing.write_token(copy.chunk, copy.version, [target])
        order = ReplicateChunk(copy.chunk, copy.version, [target], token, copy.bytes_per_second)
        cluster, schedule = self.cluster, self.files.schedule
        schedule.copy_begins(copy.chunk, copy.source, copy.target)

        def finished(reply: Message) -> None:
            schedule.copy_ended(copy.chunk)
            cluster.answered(copy, copied=isinstance(reply, Done))

        self._link(copy.source).order(order, finished)

    def _ask_for_proof(self, question: Question) -> None:
        cluster = self.cluster
        self._link(question.node).order(question.message, lambda reply: cluster.proven(question, reply))

    def _send(self, orders: Sequence[Order]) -> None:
        self._drops.look(self.cluster, orders)
        for order in orders:
            if isinstance(order.message, Granted | GrantRefused):
                self._push(order.message)
            else:
                self._link(order.node).order(order.message, lambda _reply: None)

    def _link(self, node: str) -> SimulatedDatanode | LyingDatanode:
        return self.liars.get(node) or self.datanodes[node]

    def _push(self, message: Granted | GrantRefused) -> None:
        """To a client; it may be lost, or come twice."""
        for _ in range(self.world.random.choice((1, 1, 1, 2))):
            if not self.world.loses():
                self.world.later(self.world.transit_s(), lambda: GRANT_CLIENT.deliver(message))

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
                self.epochs.accept(message.node, message.epoch_seen, message.commit_seen)
                self.cluster.register(now_s, message)
                self.files.schedule.registered(message.node, message.streams)
                return Registered(self.epochs.numbering.epoch, self.world.wall_clock_s(self.node))
            case ReportChunks() | Heartbeat():
                if isinstance(message, Heartbeat):
                    self._drops.corrupt.update((caller, replica.chunk) for replica in message.corrupt)
                if isinstance(message, ReportChunks):
                    orders = self.cluster.report(now_s, caller, message)
                else:
                    orders = self.cluster.heartbeat(now_s, caller, message)
                if any(isinstance(order.message, ReportAgain) for order in orders):
                    return ReportAgain()
                self._send(orders)
                if isinstance(message, ReportChunks):
                    return Done()
                return HeartbeatAck(
                    self.epochs.numbering.epoch, self.world.wall_clock_s(self.node), self.metadata.tx_durable
                )
            case StateReads():
                return await self.files.recovery.state(message)
            case AllocateChunk():
                return await self.files.writing.allocate(message, None)
            case StateWriteSet():
                return await self.files.schedule.state(message, caller, None)
            case StreamEnded():
                return self.files.schedule.ended(caller, message)
            case StreamsFound():
                return self.files.schedule.found(caller, message)
            case CompleteFile():
                return await self.files.writing.complete(message, None)
            case messages.CreateFile():
                ticket = await self.files.writing.create(calls.wanted(message, None))
                return messages.Created(ticket.token, ticket.allocated)
            case PublishFile():
                return await self.files.writing.publish(message, None)
            case FlushFile():
                return await self.files.writing.flush(message, None)
            case Extend():
                return await self.files.appending.extend(message.path, message.user, message.holder, None)
            case KeepChunks():
                return await self.files.writing.keep(message)
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
                self._drops.corrupt.add((message.node, message.chunk))
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
            case ListNames():
                page = await self.files.names.list_page(message.path, message.user, None, list_page_entries)
                assert page.remaining == 0
                files = [entry.name for entry in page.entries if entry.kind is InodeKind.FILE]
                return Names(files, [entry.name for entry in page.entries if entry.kind is InodeKind.DIRECTORY])
            case BeginRun():
                begun = await self.files.fencing.begin(message.path, message.user, caller, 1, message.request_id)
                return RunBegun(begun.location)
            case Move():
                await self.files.names.rename(message.source, message.target, "simulated", RenameMode.STRICT)
                return Done()
            case _:
                raise AssertionError(f"nobody answers {type(message).__name__}")
