"""A datanode in the simulated world: the real store, pipeline and obedience to orders, over simulated disks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from random import Random

from simulation.client_requests import OnLink
from simulation.simulated_gateway import SimulatedGateway
from simulation.simulated_network import SimulatedConnection
from simulation.terms import CALL_TIMEOUT_S, HOP_TIMEOUT_S, SIGNER
from simulation.watched_disks import WatchedDisks
from simulation.world import World
from store.simulated_disk import SimulatedDisk

from peacefs.datanode.cluster_clock import ClusterClock
from peacefs.datanode.control.commands import Orders
from peacefs.datanode.control.prover import Prover
from peacefs.datanode.control.replicator import Replicator
from peacefs.datanode.disks.disk import Disk
from peacefs.datanode.disks.disk_balancer import DiskBalancer
from peacefs.datanode.disks.scrubber import Scrubber
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.pipeline.dispatch import DataRequests
from peacefs.datanode.pipeline.hop import PipelineHop
from peacefs.datanode.pipeline.latency_samples import LatencySamples
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.replica_changes import Changes
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import ChunkError, PeacefsError, PeerUnreachable
from peacefs.protocol.limits import (
    disk_balance_look_s,
    heartbeat_interval_s,
    scrub_rest_s,
)
from peacefs.protocol.messages import (
    AskStreams,
    Done,
    Failure,
    FlushUploads,
    Heartbeat,
    HeartbeatAck,
    Message,
    Register,
    Registered,
    ReportChunks,
    Usage,
)
from peacefs.protocol.runtime import effects as fx

#: Those of every datanode.
DISKS = ("/disk-1", "/disk-2")
_ROOM_BYTES = 1 << 40
_SCRUB_PERIOD_S = 60.0
_SCRUB_BYTES_PER_SECOND = 1 << 20


class SimulatedDatanode:
    """A datanode's node and what runs on it."""

    def __init__(self, world: World, name: str, rack: str, copy_rate: float) -> None:
        self.world = world
        self.node = world.add_node(name)
        self.rack = rack
        self._copy_rate = copy_rate
        self.address = (f"{name}.simulated", 9866)
        self.store: WatchedDisks
        self.capacity_bytes = _ROOM_BYTES
        #: On its disk: what identity.json remembers.
        self.epoch_seen = 0
        self.commit_seen = 0
        #: On its disk, too.
        self._credential = Credential.make()
        self.start()

    def start(self) -> None:
        world, node = self.world, self.node
        world.restart(node)
        self._process = f"{node.name}-{node.generation}"
        self.gateway = SimulatedGateway()
        changes = Changes()
        clock = ClusterClock(lambda: world.now_s, lambda: world.wall_clock_s(node))
        node.clock = clock.now_s
        samples = self._samples = LatencySamples()
        disks = [
            Disk(
                directory,
                ChunkStore(
                    directory,
                    0,
                    available_bytes=self._available_bytes,
                    rng=Random(world.random.random()),
                    on_lost=changes.removed,
                ),
            )
            for directory in DISKS
        ]
        self.store = WatchedDisks(disks, node.disk, Random(world.random.random()), changes)
        self.streams = StreamsUnderWay(node.name)
        hop = PipelineHop(
            node.name, SIGNER, self.store, changes, self.streams, samples, hop_timeout_s=HOP_TIMEOUT_S
        )
        server = ChunkServer(SIGNER, self.store, changes, reader_timeout_s=HOP_TIMEOUT_S)
        requests = self._requests = DataRequests(hop, server)
        budget = CopyBudget(self._copy_rate)
        replicator = Replicator(self.store, changes, budget=budget, hop_timeout_s=HOP_TIMEOUT_S)
        prover = Prover(self.store, changes, budget=CopyBudget(self._copy_rate))
        self._orders = Orders(self.store, changes, replicator, prover)

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
                except PeacefsError:
                    yield from fx.sleep(0.5)

        world.spawn(node, "living", live())
        world.spawn(node, "compacting", self._keep_compacting())
        self.disk_balancer = DiskBalancer(self.store, lambda: world.now_s, changes.corrupt)
        world.spawn(node, "balancing disks", self._keep_balancing_disks())

    def _available_bytes(self) -> int:
        disk = self.node.disk
        return _ROOM_BYTES if disk.capacity_bytes == sys.maxsize else disk.available_bytes()

    # A failure in the following is tried again, as by the real datanode's threads.

    def _keep_compacting(self) -> fx.Steps[None]:
        while True:
            yield from fx.sleep(5.0)
            with contextlib.suppress(ChunkError):
                yield from self.store.compact()

    def _keep_balancing_disks(self) -> fx.Steps[None]:
        while True:
            yield from fx.sleep(disk_balance_look_s)
            with contextlib.suppress(ChunkError):
                yield from self.disk_balancer.advance()

    def _keep_scrubbing(self, changes: Changes) -> fx.Steps[None]:
        scrubber = Scrubber(
            self.store,
            DISKS[0],
            changes.corrupt,
            period_s=_SCRUB_PERIOD_S,
            bytes_per_second=_SCRUB_BYTES_PER_SECOND,
        )
        while True:
            try:
                rest_s = yield from scrubber.advance()
            except OSError:
                rest_s = scrub_rest_s
            yield from fx.sleep(rest_s)

    def crash(self) -> None:
        self.world.crash(self.node)

    def wipe(self) -> None:
        """While it is off: its disks are replaced by new ones."""
        assert not self.node.up
        self.node.disk = SimulatedDisk(Random(self.world.random.random()))
        self.epoch_seen = self.commit_seen = 0

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
                steps = self.gateway.flush(order) if isinstance(order, FlushUploads) else self._orders.obey(order)
                task = world.spawn(self.node, type(order).__name__, steps)
                world.when_done(task, lambda done: answered(lost if done.error is not None else done.result))

        for _ in range(world.times()):
            separated = world.network.separates(self.node, world.nodes["coordinator"])
            if self.node.up and not separated and not world.loses():
                world.later(world.transit_s(), arrive)
            else:
                world.later(CALL_TIMEOUT_S, lambda: answered(lost))

    def usage(self) -> Usage:
        used = self.store.usage()
        room = self.capacity_bytes - used.used_bytes
        streams = self._requests.streams
        return Usage(self.capacity_bytes, used.used_bytes, room, streams, used.live_bytes)

    def _answer_about_streams(self, question: AskStreams) -> fx.Steps[None]:
        with contextlib.suppress(PeacefsError):
            yield from fx.call(self.streams.find(question, self.world.now_s), Done, timeout_s=CALL_TIMEOUT_S)

    def _stay_registered(self, changes: Changes, clock: ClusterClock) -> fx.Steps[None]:
        """Stay registered as `CoordinatorLink` does, without its threads."""
        link = f"{self.node.name}-{self.world.now_s}"
        registration = Register(
            self.node.name,
            *self.address,
            *self.address,
            self.rack,
            self.usage(),
            self.epoch_seen,
            process=self._process,
            public_key=self._credential.public_key,
            proof=self._credential.sign_registration(self.node.name, link.encode()),
            streams=list(self.streams.headed_here()),
            commit_seen=self.commit_seen,
        )
        registered = yield from fx.call(OnLink(link, registration), Registered, timeout_s=CALL_TIMEOUT_S)
        self.epoch_seen = max(self.epoch_seen, registered.epoch)
        self.streams.registered(registered.epoch)
        clock.heard(registered.clock_s)
        changes.forget()
        report = ReportChunks(list(self.store.replicas()), last=True)
        yield from fx.call(OnLink(link, report), Done, timeout_s=CALL_TIMEOUT_S)
        while True:
            beat = Heartbeat(
                self.usage(), *changes.take(), self._samples.lately(self.world.now_s), self.store.reports()
            )
            ack = yield from fx.call(OnLink(link, beat), HeartbeatAck, timeout_s=CALL_TIMEOUT_S)
            clock.heard(ack.clock_s)
            self.commit_seen = max(self.commit_seen, ack.commit)
            yield from fx.sleep(heartbeat_interval_s)
