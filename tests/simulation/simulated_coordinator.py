"""The coordinator in the simulated world: the service's `Assembly` over simulated links and SQLite in memory.

The log and the image survive its crashes; the image lags behind the log. It lacks only the service's sockets,
uvicorn, and the thread that writes the log, which `writer_thread` simulates.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from random import Random
from typing import Any, NoReturn, TypeVar

import apsw
from simulation.client_requests import (
    BeginRun,
    Create,
    Created,
    CreateOverWebHdfs,
    Delete,
    Extend,
    ListNames,
    Move,
    Names,
    OnLink,
    Open,
    Opened,
    Redirected,
    RunBegun,
    Stat,
    Stated,
    Truncate,
)
from simulation.control_calls import COORDINATOR
from simulation.drop_watch import DropWatch
from simulation.durable_log import DurableLog
from simulation.late_image import LateImage
from simulation.lying_datanode import LyingDatanode
from simulation.metadata_watch import QuotaWatch, check_image
from simulation.name_changes import Change, make_change
from simulation.simulated_agent import SimulatedAgent
from simulation.simulated_datanode import SimulatedDatanode
from simulation.simulated_links import SimulatedLink, SimulatedLinks, wait
from simulation.terms import CHUNK_BYTES, HTTP_CLIENT, SIGNER
from simulation.world import World
from simulation.writer_thread import SimulatedCommits, WriterThread
from support.long_runs import often
from support.replica_watch import ReplicaWatch

from peacefs.coordinator.assembly import Assembly, Settings, Surroundings
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.limits import list_page_entries, restore_epoch_jump_max, tick_interval_s
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.model import InodeKind, RenameMode
from peacefs.coordinator.metadata.sqlite.image import ImageWriter
from peacefs.coordinator.metadata.sqlite.memory_image import MemoryImage
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc import dispatch as calls
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import unreferenced_chunk_kept_s
from peacefs.protocol.messages import Done, Failure, Heartbeat, Message, ReportCorrupt
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx

T = TypeVar("T")
#: Small, so that even copies of small trees take several commits.
_COPIED_PER_COMMIT = 2
#: Often enough to find differences that no event reports. A comparison costs as much as all decisions of a tick.
_COMPARED_EVERY_TICKS = 6
#: SQLite's maximum.
_PAGES_MAX = 4294967294
#: Maximum pauses of the process that writes the image. One is drawn at each start of a coordinator.
_IMAGE_PAUSES_S = (0.005, 0.05, 0.5, 5.0, 60.0)


class _Sleep:
    """The awaitable that replaces `asyncio.sleep` in the real code's coroutines."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[fx.Effect, Any, None]:
        yield fx.Sleep(self._seconds)


async def sleep(seconds: float) -> None:
    await _Sleep(seconds)


def _copy(image: apsw.Connection) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    with connection.backup("main", image, "main") as copying:
        copying.step()
    return connection


class SimulatedCoordinator:
    """The coordinator's node. `image` and `log` are on its disk; a crash loses everything else."""

    metadata: MetadataInMemory

    def __init__(
        self,
        world: World,
        policy: str,
        streams_per_node: int,
        trash_minutes: int = 0,
        collect_temporary_hours: float | None = None,
        name: str = COORDINATOR,
    ) -> None:
        self.world = world
        self.name = name
        self._collect_temporary_hours = collect_temporary_hours
        self._trash_minutes = trash_minutes
        self._policy = policy
        self._streams_per_node = streams_per_node
        self.node = world.add_node(name)
        self.image = self.new_image()
        self.log = DurableLog(self.image)
        self.tokens_live_s = unreferenced_chunk_kept_s
        self.datanodes: dict[str, SimulatedDatanode] = {}
        self.liars: dict[str, LyingDatanode] = {}
        self.agents: dict[str, SimulatedAgent] = {}
        self.leadership = Leadership.alone()
        self.parts: Assembly
        self.start()

    def new_image(self) -> apsw.Connection:
        return store_in_memory().image

    def start(self) -> None:
        """Start with the log and the image that the last crash left. They must be sound."""
        world = self.world
        world.restart(self.node)
        self.make_room()
        check_image(self.image)
        self.metadata = self.open_metadata(partial(LateImage, random=Random(world.random.random())))
        self.log.check_found(self.metadata)
        self.quotas = QuotaWatch(self.metadata.rows)
        writer = WriterThread(world, self.node, Random(world.random.random()), self.reaches_journal)
        refuse = self.leadership.refuse_to_commit
        self.commits = SimulatedCommits(self.metadata, self.log, writer, self.fail, refuse)
        self.log.appended = self.appended
        # Bound to the cluster of this start, so that late messages for an earlier start cannot change this one.
        self._replicas = ReplicaWatch(lambda: parts.core.cluster)
        self._drops = DropWatch(self.liars)
        self._links: dict[str, SimulatedLink] = {}
        self.links = SimulatedLinks(world, self._drops, lambda: self.cluster, self.log)
        parts = self.parts = Assembly(
            Surroundings(
                metadata=self.metadata,
                reader=self.metadata.reader(),
                commits=self.commits,
                signer=SIGNER,
                links=self.links,
                spawn=self._spawn,
                on_fault=self.fail,
                leadership=self.leadership,
                rng=Random(world.random.random()),
                history=self._replicas,
                monotonic=lambda: world.now_s,
                wall_clock=lambda: world.wall_clock_s(self.node),
                sleep=sleep,
                wait=wait,
            ),
            Settings(
                callers=Callers("simulated"),
                policy=self._policy,
                streams_per_node=self._streams_per_node,
                trash_minutes=self._trash_minutes,
                collect_temporary_hours=self._collect_temporary_hours,
                unreferenced_kept_s=self.tokens_live_s,
                copied_per_commit=_COPIED_PER_COMMIT,
            ),
        )
        world.calls.coordinators[self.name] = self.answer
        self.run(self.tasks())
        world.spawn(self.node, "comparing replicas", self._keep_comparing(), is_vital=True)
        self._keep_image(writer, self.commits)

    def open_metadata(self, keeper: Callable[[ImageWriter], MemoryImage]) -> MetadataInMemory:
        return MetadataInMemory(self.image, self.log, keeper=keeper)

    def reaches_journal(self) -> bool:
        """Return True: this coordinator has no journal."""
        return True

    def appended(self) -> None:
        """Check the quotas after each entry of the log."""
        self.quotas.look()

    def _keep_image(self, writer: WriterThread, commits: SimulatedCommits) -> None:
        """Have the image written at random times, as by a second process."""
        random = self.world.random
        pause_s_max = random.choice(_IMAGE_PAUSES_S)

        def step() -> None:
            try:
                commits.tend()
            except MetadataFault:
                # This step found that an entry could not be written, which ends the process.
                assert not self.node.up
                return
            writer.later(random.uniform(0.0, pause_s_max), step)

        step()

    def tasks(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        """Return the tasks that start together with the coordinator."""
        return self.parts.background.all()

    def run(self, tasks: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
        for name, task in tasks:
            # When a background task fails, the service stops.
            self.world.spawn(self.node, name, task, is_vital=True)

    def fail(self, fault: BaseException) -> NoReturn:
        """Fail the test: SQLite in memory never fails."""
        raise AssertionError(f"SQLite in memory failed: {fault}")

    @property
    def cluster(self) -> Cluster:
        return self.parts.core.cluster

    @property
    def epochs(self) -> Epochs:
        return self.parts.core.epochs

    @property
    def files(self) -> Files:
        return self.parts.files

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.world.spawn(self.node, "a request", work)

    def crash(self) -> None:
        self.world.calls.coordinators[self.name] = None
        self.world.crash(self.node)

    def fill_disk(self) -> None:
        """Leave no space for another entry of the log or another page of the image."""
        self.log.fails = LogFull("the disk is full")
        self.image.execute("PRAGMA max_page_count = 1")

    def make_room(self) -> None:
        self.log.fails = None
        self.image.execute(f"PRAGMA max_page_count = {_PAGES_MAX}")

    def back_up(self) -> apsw.Connection:
        """Make a copy as `peacefs metadata backup` does."""
        return _copy(self.metadata.imaged())

    def restore(self, backup: apsw.Connection) -> None:
        """Restore a backup as `peacefs metadata restore` does after a loss. Call `start` afterwards."""
        self.put_back(backup)
        restored = MetadataInMemory(self.image, self.log)
        restored.hold_gc_floor()
        drawn = restored.begin_epoch()
        restored.begin_epoch(drawn + self.world.random.randint(1, restore_epoch_jump_max))

    def put_back(self, backup: apsw.Connection) -> None:
        """Replace log and image by a copy, without the steps of a restore. Call `start` afterwards."""
        self.image = _copy(backup)
        self.log = DurableLog(self.image)

    def _keep_comparing(self) -> fx.Steps[None]:
        """Compare the coordinator's replica lists with its table of their states, again and again."""
        while True:
            self._replicas.compare()
            yield from fx.sleep(often(_COMPARED_EVERY_TICKS, 1) * tick_interval_s)

    async def answer(self, caller: str, message: Message) -> Message:
        """Answer a message as the service does: after everything that the answer depends on is durable."""
        try:
            if isinstance(message, OnLink):
                return await self._on_link(caller, message)
            durable = self.files.durable
            watched = durable.watched()
            reply = await watched.run(self._answer_or_refuse(caller, message))
            await durable.settle(watched)
            return reply
        except PeacefsError as error:
            return Failure(error.code, error.message, error.culprit)

    async def _answer_or_refuse(self, caller: str, message: Message) -> Message:
        try:
            return await self._answer(caller, message)
        except PeacefsError as error:
            return Failure(error.code, error.message, error.culprit)

    async def _on_link(self, caller: str, said: OnLink) -> Message:
        if isinstance(said.message, Heartbeat):
            self._drops.corrupt.update((caller, replica.chunk) for replica in said.message.corrupt)
        link = self._links.get(said.link)
        if link is None:
            link = self._links[said.link] = self._connect(caller, said.link)
        return await link.carry(self.parts.nodes.received, said.message)

    def _connect(self, caller: str, key: str) -> SimulatedLink:
        datanode = self.datanodes.get(caller)
        peer = datanode.end_for(self.name) if datanode else self.agents.get(caller) or self.liars[caller]
        link = SimulatedLink(self.world, caller, key, "agent" if caller in self.agents else "datanode", peer)
        parts = self.parts

        def broken() -> None:
            if not self.world.network.separates(peer.node, self.node):
                link.close()
                parts.nodes.closed(link)

        peer.node.when_down.append(lambda: self.world.later(self.world.transit_s(), broken))
        return link

    async def _answer(self, caller: str, message: Message) -> Message:
        match message:
            case Change():
                await make_change(self.files, message)
                return Done()
            case Extend():
                return await self.files.appending.extend(message.path, message.user, message.holder, None)
            case Truncate():
                await self.files.reshaping.truncate(message.path, message.length, "simulated")
                return Done()
            case ReportCorrupt():
                self._drops.corrupt.add((message.node, message.chunk))
                return await calls.carry_out(self.files, message, None, caller)
            case Create():
                wanted = NewFile(
                    path=message.path,
                    user=message.user,
                    overwrite=True,
                    block_bytes=CHUNK_BYTES,
                    request_id=message.request_id,
                )
                ticket = await self.files.writing.create(wanted, None)
                return Created(ticket.token, ticket.allocated)
            case CreateOverWebHdfs():
                wanted = NewFile(
                    path=message.path, user="simulated", block_bytes=CHUNK_BYTES, request_id=message.request_id
                )
                ticket = await self.files.writing.create(wanted, None, is_shown=True)
                return Redirected(ticket.token, ticket.http_host.partition(".")[0])
            case Stat():
                return Stated((await self.files.names.status(message.path, "simulated")).length)
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
                link = None if caller.startswith(HTTP_CLIENT) else caller
                return await calls.carry_out(self.files, message, None, link)
