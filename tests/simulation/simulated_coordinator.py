"""The coordinator in the simulated world: the `Assembly` of the service, over simulated links, SQLite in memory.

The metadata outlives its crashes. Only what the service stands before it is missing: sockets, uvicorn, and the
thread of group commit, for which `writer_thread` stands.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from random import Random
from typing import Any, NoReturn

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
from simulation.lying_datanode import LyingDatanode
from simulation.metadata_watch import QuotaWatch, check_sound
from simulation.name_changes import Change, make_change
from simulation.simulated_agent import SimulatedAgent
from simulation.simulated_datanode import SimulatedDatanode
from simulation.simulated_links import SimulatedLink, SimulatedLinks, wait
from simulation.terms import CHUNK_BYTES, HTTP_CLIENT, SIGNER
from simulation.world import World
from simulation.writer_thread import WriterThread
from support.long_runs import often
from support.replica_watch import ReplicaWatch

from peacefs.coordinator.assembly import Assembly, Settings, Surroundings
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.limits import list_page_entries, restore_epoch_jump_max, tick_interval_s
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.group_commit import Commit
from peacefs.coordinator.metadata.model import InodeKind, RenameMode
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc import dispatch as calls
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import unreferenced_chunk_kept_s
from peacefs.protocol.messages import Done, Failure, Heartbeat, Message, ReportCorrupt
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx

#: So that copies of small trees take several commits.
_COPIED_PER_COMMIT = 2
#: A comparison finds changes without an event soon enough so; it takes as long as all that a tick decides.
_COMPARED_EVERY_TICKS = 6
#: As many as SQLite can have.
_PAGES_MAX = 4294967294


class _Sleep:
    """The awaitable of the real code's coroutines in place of asyncio's sleep."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[fx.Effect, Any, None]:
        yield fx.Sleep(self._seconds)


async def sleep(seconds: float) -> None:
    await _Sleep(seconds)


def _copy(metadata: MetadataInMemory) -> MetadataInMemory:
    connection = apsw.Connection(":memory:")
    with connection.backup("main", metadata.imaged(), "main") as copying:
        copying.step()
    return MetadataInMemory(connection)


class SimulatedCoordinator:
    """The coordinator's node. `metadata` is on its disk; everything else is lost in a crash."""

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
        self.metadata = store_in_memory()
        self.tokens_live_s = unreferenced_chunk_kept_s
        self.datanodes: dict[str, SimulatedDatanode] = {}
        self.liars: dict[str, LyingDatanode] = {}
        self.agents: dict[str, SimulatedAgent] = {}
        self.leadership = Leadership.alone()
        self.parts: Assembly
        self.start()

    def start(self) -> None:
        """Finds the metadata as the last crash left it: whatever was under way, they are sound."""
        world = self.world
        world.restart(self.node)
        self.make_room()
        check_sound(self.metadata)
        self.quotas = QuotaWatch(self.metadata)
        writer = WriterThread(
            self.metadata,
            Random(world.random.random()),
            lambda: world.now_s,
            sleep,
            self.quotas.look,
            lambda: self._is_full,
            self.fail,
        )
        # Bound to the cluster of this start: what still comes for an earlier one concerns that one alone.
        self._replicas = ReplicaWatch(lambda: parts.core.cluster)
        self._drops = DropWatch(self.liars)
        self._links: dict[str, SimulatedLink] = {}
        self.links = SimulatedLinks(world, self._drops, lambda: self.cluster)
        parts = self.parts = Assembly(
            Surroundings(
                metadata=self.metadata,
                reader=writer.reader(),
                commit=self.commit_of(writer),
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

    def commit_of(self, writer: WriterThread) -> Commit:
        """Return how changes are committed."""
        return writer.commit

    def tasks(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what begins with the coordinator."""
        return self.parts.background.all()

    def run(self, tasks: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
        for name, task in tasks:
            # When a background task fails, the service stops.
            self.world.spawn(self.node, name, task, is_vital=True)

    def fail(self, fault: BaseException) -> NoReturn:
        """The metadata can no longer be written."""
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
        """From now on changes are refused, and the metadata finds no room for another page."""
        self._is_full = True
        self.metadata.imaged().execute("PRAGMA max_page_count = 1")

    def make_room(self) -> None:
        self._is_full = False
        self.metadata.imaged().execute(f"PRAGMA max_page_count = {_PAGES_MAX}")

    def back_up(self) -> MetadataInMemory:
        """Make a copy as `peacefs metadata backup` does."""
        return _copy(self.metadata)

    def restore(self, backup: MetadataInMemory) -> None:
        """Restore a copy as `peacefs metadata restore` does, after the metadata was lost; `start` follows."""
        self.metadata = _copy(backup)
        self.metadata.hold_gc_floor()
        drawn = self.metadata.begin_epoch()
        self.metadata.begin_epoch(drawn + self.world.random.randint(1, restore_epoch_jump_max))

    def _keep_comparing(self) -> fx.Steps[None]:
        """Hold the lists of replicas against what the table of their states says."""
        while True:
            self._replicas.compare()
            yield from fx.sleep(often(_COMPARED_EVERY_TICKS, 1) * tick_interval_s)

    async def answer(self, caller: str, message: Message) -> Message:
        """Answer a message as the service's links do."""
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
            case OnLink():
                return await self._on_link(caller, message)
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
