"""A datanode in the simulated world: the real store, pipeline and execution of orders, over simulated disks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from random import Random

from simulation.client_requests import OnLink
from simulation.control_calls import COORDINATOR
from simulation.simulated_gateway import SimulatedGateway
from simulation.simulated_network import SimulatedConnection
from simulation.terms import CALL_TIMEOUT_S, HOP_TIMEOUT_S, SIGNER
from simulation.watched_disks import WatchedDisks
from simulation.world import Task, World
from store.simulated_disk import SimulatedDisk
from support.long_runs import often

from peacefs.datanode.cluster_clock import ClusterClock
from peacefs.datanode.control.commands import Orders
from peacefs.datanode.control.obedience import Obedience
from peacefs.datanode.control.prover import Prover
from peacefs.datanode.control.replicator import Replicator
from peacefs.datanode.disks.disk import Disk
from peacefs.datanode.disks.disk_balancer import DiskBalancer
from peacefs.datanode.disks.scrubber import Scrubber
from peacefs.datanode.limits import disk_balance_look_s, scrub_rest_s
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.pipeline.dispatch import DataRequests
from peacefs.datanode.pipeline.hop import PipelineHop
from peacefs.datanode.pipeline.latency_samples import LatencySamples
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.replica_changes import ChangeSink, ReplicaChanges, SharedChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import ChunkError, PeacefsError, PeerUnreachable
from peacefs.protocol.limits import heartbeat_interval_s
from peacefs.protocol.messages import (
    ORDERS,
    AskStreams,
    DeleteChunks,
    Done,
    Failure,
    FlushUploads,
    Heartbeat,
    HeartbeatAck,
    Message,
    Register,
    Registered,
    ReportChunks,
    StreamUnderWay,
    Usage,
)
from peacefs.runtime import effects as fx

#: The disks of every datanode.
DISKS = ("/disk-1", "/disk-2")
ROOM_BYTES = 1 << 40
#: A real datanode checks more often whether its disks need balancing. Here those checks would be a seventh of all
#: events.
_DISK_BALANCE_LOOKS = 4
_SCRUB_PERIOD_S = 60.0
_SCRUB_BYTES_PER_SECOND = 1 << 20


class SimulatedDatanode:
    """A datanode's node and everything that runs on it."""

    def __init__(
        self,
        world: World,
        name: str,
        rack: str,
        copy_rate: float,
        coordinators: Sequence[str] = (COORDINATOR,),
        obedience: type[Obedience] = Obedience,
    ) -> None:
        self.world = world
        self._coordinators = coordinators
        self._obedience_class = obedience
        #: The highest epoch that a leader has announced to it. The world checks its obedience against this.
        self.epoch_told = 0
        #: Called when it has dropped the replicas of an order.
        self.dropped: Callable[[DeleteChunks], None] = lambda order: None
        #: Returns how long an order waits in its queue.
        self.queue_s: Callable[[Message], float] = lambda order: 0.0
        self.node = world.add_node(name)
        self.rack = rack
        self._copy_rate = copy_rate
        self.address = (f"{name}.simulated", 9866)
        self.store: WatchedDisks
        self.capacity_bytes = ROOM_BYTES
        #: On its disk: the contents of identity.json.
        self.epoch_seen = 0
        self.commit_seen = 0
        #: Also on its disk.
        self._credential = Credential.make()
        self.start()

    def start(self) -> None:
        world, node = self.world, self.node
        world.restart(node)
        self._process = f"{node.name}-{node.generation}"
        self.gateway = SimulatedGateway()
        changes = SharedChanges()
        links = [SimulatedCoordinatorLink(self, name, changes.another()) for name in self._coordinators]
        self._links = {link.coordinator: link for link in links}
        self.obedience = self._obedience_class(len(links), self.epoch_seen)
        clock = self._clock = ClusterClock(lambda: world.now_s, lambda: world.wall_clock_s(node))
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
            SIGNER,
            self.store,
            changes,
            self.streams,
            samples,
            clock=lambda: world.now_s,
            wall_clock=clock.now_s,
            hop_timeout_s=HOP_TIMEOUT_S,
        )
        server = ChunkServer(SIGNER, self.store, changes, wall_clock=clock.now_s, reader_timeout_s=HOP_TIMEOUT_S)
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
            for link in links[1:]:
                world.spawn(node, f"a link to {link.coordinator}", link.keep())
            yield from links[0].keep()

        world.spawn(node, "living", live())
        world.spawn(node, "compacting", self._keep_compacting())
        self.disk_balancer = DiskBalancer(self.store, lambda: world.now_s, changes.corrupt)
        world.spawn(node, "balancing disks", self._keep_balancing_disks())

    def _available_bytes(self) -> int:
        disk = self.node.disk
        return ROOM_BYTES if disk.capacity_bytes == sys.maxsize else disk.available_bytes()

    # Work that fails is repeated, as by the real datanode's threads.

    def _keep_compacting(self) -> fx.Steps[None]:
        while True:
            yield from fx.sleep(5.0)
            with contextlib.suppress(ChunkError):
                yield from self.store.compact()

    def _keep_balancing_disks(self) -> fx.Steps[None]:
        while True:
            yield from fx.sleep(often(_DISK_BALANCE_LOOKS, 1) * disk_balance_look_s)
            with contextlib.suppress(ChunkError):
                yield from self.disk_balancer.advance()

    def _keep_scrubbing(self, changes: ChangeSink) -> fx.Steps[None]:
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
        """Replace the disks by new ones. The datanode must be down."""
        assert not self.node.up
        self.node.disk = SimulatedDisk(Random(self.world.random.random()))
        self.epoch_seen = self.commit_seen = self.epoch_told = 0

    def end_for(self, coordinator: str) -> DatanodeEnd:
        """Return the end of the link between this datanode and a coordinator."""
        return DatanodeEnd(self, coordinator)

    def hear(self, coordinator: str, epoch: int, clock_s: float, *, leads: bool) -> bool:
        """Process a coordinator's announcement. Return whether to obey it, as `CoordinatorLink` does."""
        self.epoch_told = max(self.epoch_told, epoch if leads else 0)
        if not self.obedience.heard(coordinator, epoch, leads=leads):
            return False
        self.epoch_seen = max(self.epoch_seen, epoch)
        self.streams.registered(epoch)
        self._clock.heard(clock_s)
        return True

    def order(self, order: Message, answered: Callable[[Message], None], coordinator: str = COORDINATOR) -> None:
        """Carry an order to the real `Orders`.

        The order is lost if the node is down, and sometimes otherwise. The coordinator learns after a timeout that
        the connection broke.
        """
        world, network = self.world, self.world.network
        lost = Failure(PeerUnreachable.__name__, f"the connection to {self.node.name} broke")

        def arrive() -> None:
            if not self.node.up:
                answered(lost)
            elif isinstance(order, HeartbeatAck):
                self.hear(coordinator, order.epoch, order.clock_s, leads=order.leads)
            elif not self.obedience.begin(order):
                answered(Failure("PeerRefused", "another coordinator leads"))
            else:
                self._obey(order, lambda reply: answered(reply if network.carries(name, coordinator) else lost))

        name = self.node.name
        for _ in range(world.times()):
            if self.node.up and network.carries(coordinator, name) and not world.loses():
                world.later(world.transit_s(), arrive)
            else:
                world.later(CALL_TIMEOUT_S, lambda: answered(lost))

    def _obey(self, order: Message, answered: Callable[[Message], None]) -> None:
        world, obedience = self.world, self.obedience
        if isinstance(order, ORDERS) and len(self._coordinators) > 1:
            assert order.epoch >= self.epoch_told, f"{order} was obeyed after epoch {self.epoch_told} was told"
        if isinstance(order, AskStreams):
            world.spawn(self.node, "answering", self._answer_about_streams(order))
            obedience.end(order)
            return
        steps = self._wait_for_its_turn(order)
        task = world.spawn(self.node, type(order).__name__, steps)

        def done(task: Task) -> None:
            obedience.end(order)
            if isinstance(order, DeleteChunks) and task.error is None:
                self.dropped(order)
            broke = Failure(PeerUnreachable.__name__, f"the connection to {self.node.name} broke")
            answered(broke if task.error is not None else task.result)

        world.when_done(task, done)

    def _wait_for_its_turn(self, order: Message) -> fx.Steps[Message]:
        """Execute an order after its time in the queue. Several orders run at the same time."""
        yield from fx.sleep(self.queue_s(order))
        if isinstance(order, FlushUploads):
            return (yield from self.gateway.flush(order))
        return (yield from self._orders.obey(order))

    def usage(self) -> Usage:
        used = self.store.usage()
        room = self.capacity_bytes - used.used_bytes
        streams = self._requests.streams
        return Usage(self.capacity_bytes, used.used_bytes, room, streams, used.live_bytes)

    def _answer_about_streams(self, question: AskStreams) -> fx.Steps[None]:
        with contextlib.suppress(PeacefsError):
            yield from fx.call(self.streams.find(question, self.world.now_s), Done, timeout_s=CALL_TIMEOUT_S)

    def registration(self, link: str) -> Register:
        """Return the registration for a link."""
        return Register(
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

    def heartbeat(self, changes: ReplicaChanges, streams: list[StreamUnderWay] | None) -> Heartbeat:
        """Return the heartbeat that is sent once a second over a link."""
        samples = self._samples.lately(self.world.now_s)
        return Heartbeat(
            self.usage(), *changes.take(), samples, self.store.reports(), self.obedience.settled, streams
        )


class DatanodeEnd:
    """A coordinator's view of a datanode at the end of a link."""

    def __init__(self, datanode: SimulatedDatanode, coordinator: str) -> None:
        self.node = datanode.node
        self._datanode = datanode
        self._coordinator = coordinator

    def order(self, order: Message, answered: Callable[[Message], None]) -> None:
        self._datanode.order(order, answered, self._coordinator)


class SimulatedCoordinatorLink:
    """A datanode's link to one coordinator. It works as `CoordinatorLink` does, but without threads."""

    def __init__(self, datanode: SimulatedDatanode, coordinator: str, changes: ReplicaChanges) -> None:
        self.coordinator = coordinator
        self._datanode = datanode
        self._changes = changes
        #: The epoch for which this coordinator has received the list of pipelines that this datanode heads.
        self._streams_told = 0

    def keep(self) -> fx.Steps[None]:
        while True:
            try:
                yield from self._stay_registered()
            except PeacefsError:
                yield from fx.sleep(0.5)

    def _stay_registered(self) -> fx.Steps[None]:
        datanode, changes = self._datanode, self._changes
        link = f"{datanode.node.name}-{datanode.world.now_s}"
        registration = OnLink(link, datanode.registration(link), self.coordinator)
        registered = yield from fx.call(registration, Registered, timeout_s=CALL_TIMEOUT_S)
        self._streams_told = registered.epoch if registered.leads else 0
        datanode.hear(self.coordinator, registered.epoch, registered.clock_s, leads=registered.leads)
        changes.forget()
        report = ReportChunks(list(datanode.store.replicas()), last=True)
        yield from fx.call(OnLink(link, report, self.coordinator), Done, timeout_s=CALL_TIMEOUT_S)
        while True:
            epoch = datanode.obedience.epoch
            streams = None if self._streams_told == epoch else list(datanode.streams.headed_here())
            beat = OnLink(link, datanode.heartbeat(changes, streams), self.coordinator)
            ack = yield from fx.call(beat, HeartbeatAck, timeout_s=CALL_TIMEOUT_S)
            self._streams_told = epoch
            if datanode.hear(self.coordinator, ack.epoch, ack.clock_s, leads=ack.leads):
                datanode.commit_seen = max(datanode.commit_seen, ack.commit)
            yield from fx.sleep(heartbeat_interval_s)
