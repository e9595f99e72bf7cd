"""The coordinator as a process: opens the metadata, wires the parts, serves HTTP and the datanodes' links."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import getpass
import logging
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import uvicorn
import uvloop

from peacefs.protocol.errors import BadRequest, InvalidTopology, ServiceUnready, StartupError
from peacefs.protocol.hello import Identity
from peacefs.protocol.http_server import build_server, listen
from peacefs.protocol.ids import NodeId
from peacefs.protocol.lifeline import announce
from peacefs.protocol.limits import (
    coordinator_http_port_default,
    coordinator_node_port_default,
    load_chunks_per_turn,
    lost_replicas_per_turn,
    repair_tick_interval_s,
    streams_per_node_default,
    supervision_tick_interval_s,
    temporary_look_interval_s,
    thread_switch_interval_s,
    tick_interval_s,
    tidy_interval_s,
    trash_look_interval_s,
)
from peacefs.protocol.loop_watchdog import LoopWatchdog
from peacefs.protocol.process import log_to_stderr, raise_open_files_limit, stop_event
from peacefs.protocol.secret import (
    find_secret_file,
    read_or_make_secret,
    read_secret,
    require_secret_for,
)
from peacefs.protocol.tokens import Signer
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Topology

from . import namespace
from .admission import Admission
from .checkpoint_looks import CheckpointLooks
from .client_link import ClientLinks
from .cluster import Cluster, Ticked
from .commits import GroupCommit, no_room
from .epochs import Epochs
from .files import Files
from .membership import State
from .metadata import MetadataFault, MetadataFull, Transaction
from .metadata_file import STORE_NAME
from .metadata_sqlite import SqliteMetadata
from .metrics import watch, watch_schedule, watch_state, watch_supervision
from .node_server import NodeServer
from .online_backup import OnlineBackup
from .permissions import Callers
from .rest import build_rest
from .rest_access import superusers_only
from .rest_balancer import add_balancer_routes
from .rest_checkpoint_looks import add_checkpoint_look_routes
from .rest_checkpoints import add_checkpoint_routes
from .rest_disk_balance import add_disk_balance_route
from .rest_metadata import add_metadata_routes
from .rest_network import add_reload_route
from .rest_queries import add_query_routes
from .scheduling import Scheduling
from .scheduling_policies import POLICY_DEFAULT
from .slow_hops import Part, Slowness
from .supervising import Supervising
from .unclaimed import UnclaimedCounts
from .webhdfs import WebHdfs
from .workplace import Workplace

log = logging.getLogger("peacefs.coordinator")
T = TypeVar("T")

#: How an address that stands for all of a machine's is reached from there.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_EXIT_AFTER_DISK_FAULT = 74  # EX_IOERR
#: Whether what runs is nobody's request but the coordinator's own work, which cannot be told to come again.
_by_itself = contextvars.ContextVar("by_itself", default=False)


@dataclass(frozen=True)
class CoordinatorOptions:
    """How a coordinator is started. Ports 0 are chosen freely; `advertise` is the host that others reach it by."""

    directory: Path
    host: str = "127.0.0.1"
    port: int = coordinator_http_port_default
    node_port: int = coordinator_node_port_default
    advertise: str | None = None
    secret_file: Path | None = None
    ready_fd: int | None = None
    parent_fd: int | None = None
    #: Whether users are refused what HDFS would refuse them. Who runs the coordinator is the superuser.
    check_permissions: bool = True
    #: Temporary files that have been left for so long are deleted; None for never.
    collect_temporary_hours: float | None = None
    #: How long what users delete with `peacefs rm` stays in their trash; 0 for not at all.
    trash_minutes: int = 0
    #: The users of each group; those of `supergroup` are superusers.
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: The network as an administrator describes it; without it, what datanodes say and default rates.
    topology: Path | None = None
    #: Which of `scheduling_policies.SCHEDULING_POLICIES` grants chunks; it can be changed while running.
    policy: str = POLICY_DEFAULT
    #: The command of the process that looks at checkpoints; without it they are not told of over REST.
    look_at_checkpoints: tuple[str, ...] = ()
    #: How many chunks a datanode takes at once, where nothing else says what it can.
    streams_per_node: int = streams_per_node_default


def run(options: CoordinatorOptions) -> None:
    """Serves until it is told to stop. Raises StartupError when it cannot start."""
    log_to_stderr()
    raise_open_files_limit()
    sys.setswitchinterval(thread_switch_interval_s)
    secret_file = find_secret_file(options.secret_file)
    require_secret_for(options.host, secret_file)
    described = _described_network(options.topology)
    _make_directory(options.directory)
    metadata = SqliteMetadata.open(_store(options.directory), owner=getpass.getuser())
    try:
        secret = (
            read_secret(secret_file) if secret_file else read_or_make_secret(options.directory / "cluster.secret")
        )
        uvloop.run(Coordinator(options, metadata, Signer(secret), described).serve())
    except (MetadataFull, MetadataFault) as fault:
        raise StartupError(f"cannot begin: {fault}. Nothing is lost; start again when that is mended") from None
    finally:
        metadata.close()


def _store(directory: Path) -> Path:
    return directory / STORE_NAME


def _described_network(file: Path | None) -> Topology | None:
    try:
        return load_topology(file) if file is not None else None
    except InvalidTopology as mistake:
        raise StartupError(f"the topology cannot be used: {mistake.message}") from None


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"cannot use {directory} for the metadata: {error.strerror}") from None


class Coordinator:
    """All parts of a running coordinator. Owned by its event loop, but for the writer thread of the commits."""

    def __init__(
        self, options: CoordinatorOptions, metadata: SqliteMetadata, signer: Signer, described: Topology | None
    ) -> None:
        self._options = options
        self._metadata = metadata
        self._epochs = Epochs(metadata)
        self._cluster = Cluster(time.monotonic(), random.Random(), described)
        self._commits = GroupCommit(metadata, self._stop_at_once, self._tell_of_room)
        self._reader = metadata.reader()
        self._advertised = options.advertise or options.host
        self._address = ""
        self._tidy_at_s = 0.0
        self._nodes = NodeServer(
            Identity(metadata.cluster_id, "coordinator", "coordinator", signer),
            self._cluster,
            epoch=self._epoch,
            on_epoch_seen=self._epoch_seen,
        )
        workplace = Workplace(
            self._reader,
            self._commit,
            self._cluster,
            signer,
            self._epochs.numbering,
            self._nodes.send,
            Callers(getpass.getuser() if options.check_permissions else None, options.groups),
        )
        self._files = Files(
            workplace,
            Scheduling(
                self._epochs.numbering,
                random.Random(),
                policy=options.policy,
                streams_per_node=options.streams_per_node,
            ),
            options.trash_minutes,
        )
        self._nodes.files = self._files
        self._supervising = Supervising(workplace, self._files.fencing, lambda: self._address)
        self._nodes.supervising = self._supervising
        self._supervising.recall()
        self._cluster.has_room = self._files.schedule.scheduling.has_room
        self._cluster.granted_pipelines = self._files.schedule.scheduling.pipelines
        self._clients = ClientLinks(self._nodes.me, self._files)
        self._files.administration.recall()

    async def serve(self) -> None:
        """Until a signal, or the parent's death."""
        options = self._options
        stop = stop_event(options.parent_fd)
        # The loop is woken once for all that one commit brought.
        self._commits.deliver = asyncio.get_running_loop().call_soon_threadsafe
        sock = listen(options.host, options.port)
        http_port = sock.getsockname()[1]
        self._address = f"{self._advertised}:{http_port}"
        server = build_server(self._http(http_port), self._clients.link)
        try:
            node_port = await self._nodes.start(options.host, options.node_port)
        except OSError as error:
            sock.close()
            raise StartupError(
                f"cannot listen on {options.host} port {options.node_port}: {error.strerror or error}"
            ) from None
        background = self._start_background(server, sock)
        self._announce(http_port, node_port)
        await self._until_stopped(stop, background)
        server.should_exit = True
        await self._nodes.stop()
        self._clients.stop()
        await background[0]
        for task in background[1:]:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self._commits.close()
        self._reader.close()
        log.info("stopped")

    def _http(self, http_port: int) -> Admission:
        """All that is served over HTTP, and what is told of it at `/metrics`."""
        options = self._options
        rest = build_rest(
            self._files,
            self._cluster,
            self._metadata.cluster_id,
            epoch=self._epoch,
            address=lambda: self._address,
            floor_held=self._reader.floor_held,
        )
        for_superusers = superusers_only(self._files.callers)
        backup = OnlineBackup(_store(options.directory))
        add_metadata_routes(rest, backup, self._release_floor, for_superusers)
        add_reload_route(rest, self._reload_topology, self._cluster, for_superusers)
        add_balancer_routes(rest, self._cluster, for_superusers)
        add_disk_balance_route(rest, self._nodes.ask, for_superusers)
        add_checkpoint_routes(rest, self._files.fencing, self._files.reporting)
        here = f"http://{_LOOPBACK_OF.get(options.host, options.host)}:{http_port}"
        looks = CheckpointLooks(options.look_at_checkpoints, here, self._files.fencing, self._files.reporting)
        add_checkpoint_look_routes(rest, looks)
        add_query_routes(rest, self._supervising)
        admission = Admission(WebHdfs(self._files, rest))
        watch(self._cluster, self._commits, admission, self._files.temporary_files)
        watch_state(self._cluster, _store(options.directory), self._reader.floor_held)
        watch_schedule(self._files.schedule, self._files.recovery)
        watch_supervision(self._supervising.core)
        return admission

    def _start_background(self, server: uvicorn.Server, sock: socket.socket) -> list[asyncio.Task[None]]:
        """The server first, which ends when it is told to; then the loading, which ends; then what never ends."""
        by_itself = contextvars.copy_context()
        by_itself.run(_by_itself.set, True)
        return [
            asyncio.create_task(server.serve(sockets=[sock])),
            *(
                asyncio.create_task(work, context=by_itself)
                for work in (
                    self._load_chunks(),
                    self._keep_ticking(),
                    LoopWatchdog().watch(),
                    self._collect_temporary_files(),
                    self._empty_trash(),
                    self._supervise(),
                )
            ),
        ]

    def _announce(self, http_port: int, node_port: int) -> None:
        log.info(
            "cluster %s, epoch %d: HTTP on %s, datanodes on %s:%d",
            self._metadata.cluster_id,
            self._epoch(),
            self._address,
            self._options.host,
            node_port,
        )
        announce(
            self._options.ready_fd,
            {
                "role": "coordinator",
                "pid": os.getpid(),
                "http_host": self._advertised,
                "http_port": http_port,
                "node_host": self._advertised,
                "node_port": node_port,
                "cluster": self._metadata.cluster_id,
            },
        )

    @staticmethod
    async def _until_stopped(stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
        """Until told to stop, or until a part that should never end has failed: then the whole service does."""
        told = asyncio.create_task(stop.wait())
        await asyncio.wait([told, *background[2:]], return_when=asyncio.FIRST_COMPLETED)
        for task in background[2:]:
            if task.done():
                log.critical("a background task failed: stopping", exc_info=task.exception())
        told.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await told

    async def _commit(self, change: Callable[[Transaction], T]) -> T:
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        submitted = self._commits.submit(change, in_any_case=_by_itself.get())
        submitted.add_done_callback(partial(_hand_on, answered))
        try:
            return await answered
        except asyncio.CancelledError:
            # Whoever asked has gone: it is not done, unless that has begun.
            submitted.cancel()
            raise

    # -- in the background -------------------------------------------------------------------------

    async def _load_chunks(self) -> None:
        # What is loaded stays, and there is much of it: to look through it for garbage would hold the loop up.
        gc.disable()
        after, count = 0, 0
        try:
            while page := namespace.chunk_page(self._reader, after, load_chunks_per_turn):
                self._cluster.load(page)
                after, count = page[-1].chunk, count + len(page)
                await asyncio.sleep(0)
        finally:
            gc.freeze()
            gc.enable()
        self._cluster.loaded()
        self._nodes.chunks_loaded()
        log.info("%d chunks are known; waiting for the datanodes' reports", count)

    async def _keep_ticking(self) -> None:
        was_ready = False
        while True:
            now_s = time.monotonic()
            self._act(self._cluster.tick(now_s, self._reader.floor()))
            self._schedule_in_turns()
            self._files.recovery.tick()
            await self._take_out_lost()
            if not was_ready and self._cluster.ready(now_s):
                was_ready = True
                log.info("ready: %d datanodes alive", len(self._cluster.members.alive()))
            # What is refused while the disk is full is done when there is room.
            with contextlib.suppress(ServiceUnready):
                await self._tidy_up(now_s)
            self._files.appending.drop_superseded()
            await asyncio.sleep(repair_tick_interval_s if self._cluster.repair.under_way else tick_interval_s)

    async def _tidy_up(self, now_s: float) -> None:
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + tidy_interval_s
            await self._raise_floor(now_s)
            await self._files.names.forget_answers()
        await self._files.names.reclaim()

    async def _collect_temporary_files(self) -> None:
        while True:
            await asyncio.sleep(temporary_look_interval_s)
            if self._options.collect_temporary_hours is not None:
                await self._files.temporary_files.collect(self._options.collect_temporary_hours * 3600)

    async def _empty_trash(self) -> None:
        is_prepared = False
        while not is_prepared:
            with contextlib.suppress(ServiceUnready):
                await self._files.trash.prepare()
                is_prepared = True
            await asyncio.sleep(0 if is_prepared else tick_interval_s)
        while True:
            await asyncio.sleep(trash_look_interval_s)
            await self._files.trash.empty()

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(supervision_tick_interval_s)
            with contextlib.suppress(ServiceUnready):
                await self._supervising.tick()

    def _schedule_in_turns(self) -> None:
        """What is due; a policy that plans for long gets another turn after all else that waits."""
        self._files.schedule.tick()
        if self._files.schedule.has_more:
            asyncio.get_running_loop().call_later(0, self._schedule_in_turns)

    async def _take_out_lost(self) -> None:
        more = True
        while more:
            more = self._cluster.chunks.take_out_lost(lost_replicas_per_turn)
            await asyncio.sleep(0)

    def _act(self, ticked: Ticked) -> None:
        for transition in ticked.transitions:
            level = logging.INFO if transition.after is State.ALIVE else logging.WARNING
            log.log(level, "datanode %s is %s", transition.node, transition.after.value)
            if transition.after is State.DEAD:
                self._files.schedule.died(transition.node)
        for found in ticked.slowness:
            _log_slowness(found)
        self._nodes.send(ticked.orders)
        for copy in ticked.copies:
            self._nodes.start_copy(copy, self._files.writing.write_token(copy.chunk, copy.version, [copy.target]))

    # -- epochs and floors -------------------------------------------------------------------------

    def _epoch(self) -> int:
        return self._epochs.numbering.epoch

    def _epoch_seen(self, node: NodeId, seen: int) -> None:
        before = self._epoch()
        try:
            is_older = self._epochs.accept(node, seen)
        except MetadataFull:
            raise no_room() from None
        except MetadataFault as fault:
            self._stop_at_once(fault)
        if is_older:
            log.warning(
                "datanode %s has seen epoch %d, this metadata was of epoch %d: it was restored from a backup. "
                "Chunks that it does not know are kept until the floor is released; the epoch is %d now",
                node,
                seen,
                before,
                self._epoch(),
            )

    async def _raise_floor(self, now_s: float) -> None:
        """Commits now and then that all numbers drawn a token's lifetime ago are settled."""
        floor = self._epochs.settled(now_s)
        if floor is not None and floor > self._reader.floor():
            await self._commit(lambda tx: tx.raise_floor(floor))

    async def _release_floor(self) -> UnclaimedCounts | None:
        """What may be deleted from now on; None when the floor was not held."""
        if not await self._commit(lambda tx: tx.release_floor()):
            return None
        counts = self._cluster.chunks.unclaimed.counts(self._epoch())
        log.warning(
            "the floor was released: %d chunks of earlier epochs that no file refers to will be deleted when all "
            "tokens to write are older than this run",
            counts.chunks_of_earlier_epochs,
        )
        return counts

    # -- the network -------------------------------------------------------------------------------

    async def _reload_topology(self) -> None:
        file = self._options.topology
        if file is None:
            raise BadRequest("this coordinator was started without --topology: there is no file to read again")
        self._cluster.describe_network(await asyncio.to_thread(load_topology, file))
        log.info("the network is that of %s as it is now", file)

    def _tell_of_room(self, has_room: bool) -> None:
        """From the writer's thread."""
        if has_room:
            log.warning("there is room on the disk of %s again: names can be changed", self._options.directory)
        else:
            log.error(
                "the disk of %s is full: nothing can be changed until there is room; names are read on",
                self._options.directory,
            )

    def _stop_at_once(self, fault: BaseException) -> NoReturn:
        """A commit failed with a disk fault: nobody may be told anything about what was in it."""
        log.critical("the metadata cannot be written (%s): stopping. Check the disk, then start again", fault)
        logging.shutdown()
        os._exit(_EXIT_AFTER_DISK_FAULT)


def _hand_on(answered: asyncio.Future[T], submitted: Future[T]) -> None:
    """On the event loop, where commits deliver."""
    if answered.done():
        return
    error = submitted.exception()
    if error is None:
        answered.set_result(submitted.result())
    else:
        answered.set_exception(error)


def _log_slowness(found: Slowness) -> None:
    what = "as a hop of pipelines" if found.part is Part.HOP else "at its disk"
    if found.is_slow:
        log.warning(
            "datanode %s is slow %s: %.3f s a MiB, the median is %.3f. New chunks avoid it where they can",
            found.node,
            what,
            found.seconds,
            found.median,
        )
    else:
        log.info("datanode %s is not slow %s any more", found.node, what)
