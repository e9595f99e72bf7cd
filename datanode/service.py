"""Makes, connects, starts and stops the parts of a datanode. `process.py` runs it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from peacefs.client.transfer.write_grants import GrantClient
from peacefs.datanode.limits import gateway_cut_off_s, gateway_drain_s
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.errors import ChunkError, PeacefsError, PeerRefused, StartupError
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import (
    AskStreams,
    BalanceDisks,
    DiskBalance,
    DiskReport,
    Failure,
    FlushUploads,
    Granted,
    GrantRefused,
    LatencySample,
    Message,
    Register,
    Replica,
    StreamsFound,
    Trust,
    Usage,
)
from peacefs.protocol.tokens import Signer
from peacefs.runtime import effects as fx
from peacefs.runtime.begun_calls import with_begun_calls
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.in_process_payloads import ServedHere
from peacefs.runtime.served_request import is_observed
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsIdentity, describe_tls
from peacefs.service.browser_guard import BrowserGuard, OwnNames
from peacefs.service.http_server import build_server, listen
from peacefs.service.lifeline import announce
from peacefs.service.process import (
    when_told_to_reload,
)

from .background import DatanodeTasks
from .cluster_clock import ClusterClock
from .control.commands import Orders
from .control.coordinator_links import CoordinatorLinks
from .control.coordinator_session import Respond
from .control.prover import Prover
from .control.replicator import Replicator
from .disks.data_directories import Claimed, rooms_of
from .disks.disk import Disk, DiskState
from .disks.disk_balancer import DiskBalancer
from .disks.disk_set import DiskSet
from .disks.metrics import StoreMetrics
from .disks.scrubber import Scrubber
from .gateway.app import Gateway
from .gateway.callers import CallerCheck
from .gateway.client_connections import ClientConnections
from .gateway.health import DatanodeHealth, HealthAnswers, ready
from .gateway.local_large_reads import LocalLargeReads
from .gateway.local_small_reads import LocalSmallReads
from .gateway.one_time_chunks import OneTimeChunks
from .gateway.url_tokens import UrlTokens
from .hdfs.block_operations import BlockOperations
from .hdfs.block_reader import BlockReads
from .hdfs.heartbeats import Heartbeats
from .hdfs.replica_questions import ReplicaQuestions
from .hdfs.transfer_server import TransferServer
from .options import DatanodeOptions
from .pipeline.active_streams import StreamsUnderWay
from .pipeline.chunk_server import ChunkServer
from .pipeline.dispatch import DataRequests
from .pipeline.hop import PipelineHop
from .pipeline.latency_samples import LatencySamples
from .pipeline.listeners import DataListeners
from .pipeline.orphaned_chunks import OrphanedChunks
from .pipeline.server import DataServer
from .rate_limiter import CopyBudget
from .store.chunk_store import ChunkStore
from .store.interface import ChunkIntake
from .store.layout import describe
from .store.replica_changes import SharedChanges

# A datanode may run these orders at once: two copies for repair, two for balancing, proofs, deletions and
# verifications.
order_threads: Final = 7
# Maximum number of segments kept open for reading. The disk space of a removed segment is freed only when its file
# is closed.
kept_files_max: Final = 64


log = logging.getLogger("peacefs.datanode")

#: Returns a slower destination for chunks than the store.
Pace = Callable[[ChunkIntake], ChunkIntake]


def _disk_changed(disk: Disk, replicas: int) -> None:
    match disk.state:
        case DiskState.FAILED:
            log.critical(
                "the disk of %s has failed (%s): its replicas (%d, as far as known) count as lost and will be"
                " copied from others. Replace the disk, then start this datanode again",
                disk.directory,
                disk.fault,
                replicas,
            )
        case DiskState.READ_ONLY:
            log.critical(
                "the disk of %s has become read-only (%s): its %d replicas are still read, but nothing is "
                "written there. Check the disk: it is used again once it can be written; or decommission this"
                " datanode",
                disk.directory,
                disk.fault,
                replicas,
            )
        case DiskState.WORKING:
            log.warning("the disk of %s can be written to again", disk.directory)


def _move_failed(replica: Replica, fault: ChunkError) -> None:
    log.warning("%s stays on its disk: %s", describe(replica.chunk, replica.version), fault.message)


def _no_room() -> int:
    return 0


class Datanode:
    """All parts of a running datanode: makes, connects, starts and stops them. `process.run` makes one.

    The links to the coordinators call its methods as their `SessionOwner`.
    """

    def __init__(
        self,
        options: DatanodeOptions,
        claimed: Claimed,
        signer: Signer,
        tls: TlsIdentity | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._options = options
        self._tls = tls
        self._directory = directory = claimed.directory
        self._signer = signer
        self._node = directory.node
        self._process = uuid.uuid4().hex
        self._advertised = options.advertise or options.host
        self._me = Identity(directory.cluster, "datanode", self._node, signer)
        self._served_here = ServedHere()
        # Connect only to addresses that the coordinator has named. A local socket's name proves nothing.
        self._pool = ConnectionPool(self._me, served_here=self._served_here, local_sockets=False, tls=tls)
        self._changes = SharedChanges()
        self._samples = LatencySamples()
        self._streams = StreamsUnderWay(self._node)
        self._grants = GrantClient(f"{self._node}-{uuid.uuid4().hex[:8]}", pushed=True)
        self._link = CoordinatorLinks(
            (options.coordinator, *options.more_coordinators),
            self._me,
            directory.credential(),
            self,
            self._changes,
            directory.epoch_seen,
            tls,
        )
        self._clock = ClusterClock()
        self._verifier = Verifier(directory.cluster)
        self._driver = ThreadDriver(
            self._pool,
            self._link.call,
            write_around_cache=options.write_around_cache,
            files_kept_max=kept_files_max,
            wall_clock=self._clock.now_s,
        )
        self._store = self._disks(claimed)
        self._is_paced = pace is not None
        self._chunk_server = ChunkServer(signer, self._store, self._changes, wall_clock=self._clock.now_s)
        self._orphans = OrphanedChunks(self._store)
        hop = PipelineHop(
            signer,
            self._store if pace is None else pace(self._store),
            self._changes,
            self._streams,
            self._samples,
            clock=time.monotonic,
            wall_clock=self._clock.now_s,
        )
        hop.orphans = self._orphans
        self._requests = DataRequests(hop, self._chunk_server, one_by_one=is_observed)
        budget = CopyBudget(options.copy_bytes_per_second)
        self._orders = Orders(
            self._store,
            self._changes,
            Replicator(self._store, self._changes, budget=budget),
            Prover(self._store, self._changes, budget=CopyBudget(options.copy_bytes_per_second)),
        )
        self._scrubber = Scrubber(
            self._store,
            str(options.directory),
            self._found_corrupt,
            period_s=options.scrub_period_s,
            bytes_per_second=options.scrub_bytes_per_second,
        )
        self._disk_balancer = DiskBalancer(
            self._store, time.monotonic, self._changes.corrupt, on_fault=_move_failed
        )
        self._order_pool = ThreadPoolExecutor(order_threads, thread_name_prefix="orders")
        self._stopping = threading.Event()
        self._http_socket: socket.socket
        self._gateway: Gateway
        self._loop: asyncio.AbstractEventLoop
        self._data_server: DataServer
        self._hdfs: TransferServer | None = None

    def _disks(self, claimed: Claimed) -> DiskSet:
        options = self._options
        paths = options.data_directories or (options.directory,)
        rooms = dict(rooms_of([path for path in paths if path not in claimed.broken]))
        disks = [
            Disk(
                str(path),
                ChunkStore(
                    str(path),
                    reserved_bytes=options.reserved_bytes,
                    available_bytes=rooms.get(path, _no_room),
                    rng=random.Random(),
                    on_lost=self._changes.removed,
                ),
                claimed.broken.get(path),
            )
            for path in paths
        ]
        return DiskSet(disks, rng=random.Random(), on_lost=self._changes.removed, on_changed=_disk_changed)

    async def serve(self, stop: asyncio.Event) -> None:
        """Recover the store and serve until told to stop."""
        recovery = await asyncio.to_thread(self._driver.run, self._store.recover())
        log.info("datanode %s of cluster %s: %s", self._node, self._me.cluster, recovery.summary())
        options = self._options
        listeners = DataListeners(
            options.host,
            options.data_port,
            self._me,
            advertised=self._advertised,
            shares_descriptors=not self._is_paced,
        )
        self._data_server = DataServer(
            listeners, self._driver, self._requests, served_here=self._served_here, tls=self._tls
        )
        self._http_socket = listen(options.host, options.http_port)
        if options.hdfs_port is not None:
            self._hdfs = self._transfer_server(options.hdfs_port)
        log.info("%s", describe_tls(self._tls, [options.host, self._advertised]))
        if self._tls is not None:
            self._tls.start_watch()
            when_told_to_reload(self._tls.reload)
        self._data_server.start()
        if self._hdfs is not None:
            self._hdfs.start()
        StoreMetrics(
            self._store,
            self.samples,
            lambda: self._scrubber.progress,
            self._disk_balancer,
            lambda: self._pool.idle,
            self._driver.write_ways.states,
        ).publish()
        own = LocalSmallReads(self._chunk_server, self._driver)
        local_large_reads = LocalLargeReads(self._chunk_server, self._driver)
        one_time_chunks = OneTimeChunks(self._signer, self._process)
        self._loop = asyncio.get_running_loop()
        callers = CallerCheck(self._verifier, self._signer, self._clock.now_s)
        gateway = self._gateway = Gateway(
            UrlTokens(self._signer, self._clock.now_s, callers.check_bearer),
            self._driver,
            self._begin,
            self._grants,
            own,
            local_large_reads,
            one_time_chunks,
        )
        names = OwnNames(options.host, self._advertised, options.allowed_hosts)
        answers = HealthAnswers(gateway, self._health)
        connections = ClientConnections(BrowserGuard(answers, names))
        server = build_server(connections, tls=self._tls, stop_grace_s=gateway_drain_s + 3 * gateway_cut_off_s)
        serving = asyncio.create_task(server.serve(sockets=[self._http_socket]))
        tasks = DatanodeTasks(
            self._driver,
            self._store,
            self._orphans,
            self._scrubber if options.scrub_period_s > 0 else None,
            self._disk_balancer if len(options.data_directories) > 1 else None,
        )
        tasks.start()
        self._link.start()
        try:
            await self._announce_when_registered(stop)
            await stop.wait()
        except PeerRefused as refusal:
            raise StartupError(f"the coordinator refuses this datanode: {refusal.message}") from None
        finally:
            connections.stopping()
            if await asyncio.to_thread(self._link.say_stopping):
                await connections.all_came(serving, lambda: self._link.is_registered)
            server.should_exit = True
            # Uploads under way may finish; clients that take longer must send them again elsewhere.
            await connections.all_ended(serving, lambda: self._link.is_registered)
            if self._hdfs is not None:
                # Received bytes are still published, so that clients lose nothing.
                await asyncio.to_thread(self._hdfs.hang_up, gateway_drain_s)
            self._stopping.set()
            if self._tls is not None:
                self._tls.stop_watch()
            tasks.stop()
            self._disk_balancer.stop()
            await asyncio.to_thread(self._link.stop)
            # Stop before a later hop fails and is blamed for it: a writer that excluded all other nodes would
            # write its only replica here.
            await asyncio.to_thread(self._data_server.hang_up)
            self._pool.shut_down()
            await server.cut_off(serving, gateway_cut_off_s)
            gateway.close()
            if self._hdfs is not None:
                await asyncio.to_thread(self._hdfs.stop)
            await asyncio.to_thread(self._data_server.stop)
            self._order_pool.shutdown(wait=True, cancel_futures=True)
            tasks.join()
            await asyncio.to_thread(self._driver.run, self._store.close())
            self._pool.close_all()
            self._driver.close()
            log.info("stopped")

    def _transfer_server(self, port: int) -> TransferServer:
        heartbeats = Heartbeats()
        operations = BlockOperations(
            self._signer,
            BlockReads(self._chunk_server, self._driver),
            self._driver,
            self._grants,
            heartbeats,
            self._orphans,
            wall_clock=self._clock.now_s,
        )
        questions = ReplicaQuestions(self._store)
        return TransferServer(self._options.host, port, operations, heartbeats, questions)

    def _begin(self, steps: fx.Steps[None], ended: Callable[[Exception | None], None]) -> None:
        self._data_server.begin(with_begun_calls(steps, self._link.begin_call), ended)

    async def _announce_when_registered(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if await asyncio.to_thread(self._link.wait_until_registered, 0.2):
                registration = self.registration()
                announce(
                    self._options.ready_fd,
                    {
                        "role": "datanode",
                        "pid": os.getpid(),
                        "node": self._node,
                        "http_host": registration.http_host,
                        "http_port": registration.http_port,
                        "data_port": registration.data_port,
                        "hdfs_port": registration.hdfs_port,
                    },
                )
                return

    def _health(self) -> DatanodeHealth:
        return ready(is_registered=self._link.is_registered, disks=self._store.reports())

    def _found_corrupt(self, replica: Replica) -> None:
        log.warning("scrubbing found %s corrupt", describe(replica.chunk, replica.version))
        self._changes.corrupt(replica)

    # -- SessionOwner -------------------------------------------------------------------------------

    def registration(self) -> Register:
        return Register(
            node=self._node,
            data_host=self._advertised,
            data_port=self._data_server.address[1],
            http_host=self._advertised,
            http_port=int(self._http_socket.getsockname()[1]),
            rack=self._options.rack,
            usage=self.usage(),
            epoch_seen=self._directory.epoch_seen,
            process=self._process,
            streams=list(self._streams.headed_here()),
            commit_seen=self._directory.commit_seen,
            hdfs_port=0 if self._hdfs is None else self._hdfs.address[1],
        )

    def replicas(self) -> Sequence[Replica]:
        return self._store.replicas()

    def usage(self) -> Usage:
        return msgspec.structs.replace(self._store.usage(), streams=self._requests.streams)

    def samples(self) -> list[LatencySample]:
        return self._samples.lately(time.monotonic())

    def disks(self) -> Sequence[DiskReport]:
        for disk in self._store.look_for_room():
            if disk.is_full:
                log.warning(
                    "the disk of %s is full (less than the reserve of %d bytes is left): new chunks go to "
                    "other disks until there is room. Delete or move data, or add a disk",
                    disk.directory,
                    self._options.reserved_bytes,
                )
            else:
                log.info("the disk of %s has room again", disk.directory)
        return self._store.reports()

    def epoch_seen(self, epoch: int) -> None:
        self._directory.remember_epoch(epoch)
        self._streams.registered(epoch)

    def clock_heard(self, clock_s: float) -> None:
        self._clock.heard(clock_s)

    def commit_heard(self, commit: int) -> None:
        self._directory.remember_commit(commit)

    def trust_told(self, trust: Trust) -> None:
        self._verifier.trust(trust)

    def granted(self, message: Granted | GrantRefused) -> None:
        self._grants.deliver(message)

    def balance_disks(self, wanted: BalanceDisks) -> DiskBalance:
        return self._disk_balancer.asked(wanted)

    def streams_found(self, question: AskStreams) -> StreamsFound:
        return self._streams.find(question, time.monotonic())

    def flush_uploads(self, wanted: FlushUploads, respond: Respond) -> None:
        if not self._stopping.is_set():
            asyncio.run_coroutine_threadsafe(self._flush_uploads(wanted, respond), self._loop)

    async def _flush_uploads(self, wanted: FlushUploads, respond: Respond) -> None:
        try:
            reply: Message = await self._gateway.flush_uploads(wanted)
        except Exception:
            log.exception("uploads could not be flushed because of a bug in this datanode")
            reply = Failure(PeacefsError.__name__, "an internal error of the datanode; its log says more")
        # On a thread, so that the event loop does not wait for the link.
        await asyncio.to_thread(respond, reply)

    def ordered(self, order: Message, respond: Respond) -> None:
        if not self._stopping.is_set():
            self._order_pool.submit(self._obey, order, respond)

    def _obey(self, order: Message, respond: Respond) -> None:
        started_s = time.monotonic()
        try:
            reply = self._driver.run(self._orders.obey(order))
        except Exception:
            log.exception("an order of the coordinator failed because of a bug in this datanode")
            reply = Failure("PeacefsError", "an internal error of the datanode; its log says more")
        respond(reply)
        log.debug("%s took %.3f s", type(order).__name__, time.monotonic() - started_s)
