"""A query that runs on nodes elsewhere: its sources, sinks and controller, in the program that started it.

The caller provides the launcher of the nodes. A dead node is detected when its process ends or is silent, and
another node is started in its place as a standby.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from peacefs.dataflow.core.controller import ControllerCore
from peacefs.dataflow.core.edge import EdgeCore
from peacefs.dataflow.core.effects import (
    CommitRows,
    DeleteCheckpoint,
    Deliver,
    Effect,
    RecordCheckpoint,
    RetainCheckpoints,
    SendMessage,
    SinkEnded,
    StopQuery,
)
from peacefs.dataflow.core.exchange import ExchangeMessage
from peacefs.dataflow.core.late_rows import LateRowCounts
from peacefs.dataflow.core.messages import (
    Message,
    NodeHeartbeat,
    Placement,
    RowsLate,
    StandbyReady,
    TakeCheckpoints,
    UnitRecovered,
)
from peacefs.dataflow.limits import dataflow_tick_s
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.admission import admit
from peacefs.protocol.errors import PeacefsError, RunSuperseded

from .checkpoint_store import delete, retain
from .edge_connectors import EdgeConnectors
from .interface import LinkMeter, RowMeter, Sink, Source
from .links import Links
from .membership import Member, Membership
from .node_pool import NodePool
from .node_process import NodeOrders
from .node_shell import EDGE
from .placement_events import PlacementEvents
from .query_run import HostedRun, check_ends, reason_of_failure
from .run_events import (
    CheckpointTaken,
    NodeLost,
    Observer,
    RecoveryMeasured,
    StandbyHasCopy,
)
from .run_records import RunRecords

# How often a driver checks whether a younger one has begun, and for how long after a check it delivers to sinks.
dataflow_fence_s: Final = 0.25


log = logging.getLogger("peacefs.dataflow")


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    `resume`: continue from the record beside the checkpoints; sources begin with their first row again. A driver
    that still runs the query is stopped. A sink of a resumed query must have an attribute `delivered`, the number
    of rows that it has durably taken; it then receives the rows after these. It should be a property that looks up
    the number, since it is read after the other driver has stopped delivering. `datanode_of`: the datanode near
    each node, so that units are recovered where their checkpoints are. `guarantee`: refuse a technique that gives
    less. `traffic` counts the bytes on links, and `row_counts` counts rows by the node that sends them.
    """

    resume: bool = False
    datanode_of: Mapping[str, str] = field(default_factory=dict)
    observer: Observer | None = None
    guarantee: Recovery | None = None
    traffic: LinkMeter | None = None
    row_counts: RowMeter | None = None


class EdgeRun(HostedRun):
    """A query on nodes, seen from the program that started it: sources, sinks and controller.

    One thread with an event loop does all the work. A checkpoint counts only once its record is durable. Rows are
    delivered only within `DriverFence.delivery`, which fails once a younger driver has begun. `start_query` makes
    it for all techniques except the peer ring. The user waits for it and closes it.
    """

    def __init__(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        pool: NodePool,
        options: RunOptions,
    ) -> None:
        recovery = self._recovery = admit(network, technique, options.guarantee)
        self._records = RunRecords(recovery, pool.checkpoints, resume=options.resume)
        check_ends((each.name for each in network.sources), (each.name for each in network.sinks), sources, sinks)
        for each in recovery.techniques:
            each.check_nodes(pool.count)
        self._network, self._pool = network, pool
        self._sources, self._sinks = sources, sinks
        self._member = Member(EDGE, secrets.token_hex(16), pool.tls)
        self._membership = Membership(self._member)
        self._options = options
        self._connectors = EdgeConnectors(recovery, self._records, sources, sinks, self)
        self._records.begin()
        self._connectors.begin()
        # Read only now, after older drivers can no longer deliver.
        delivered = {name: int(getattr(sink, "delivered", 0)) for name, sink in sinks.items()}
        self._edge = EdgeCore(
            recovery,
            pool.bounds,
            delivered={**(delivered if self._records.goes_on else {}), **self._connectors.committed},
            after=self._connectors.after,
            commits=self._connectors.committed,
            complete=self._connectors.complete,
        )
        self._controller = ControllerCore(
            [plan.name for plan in network.units],
            EdgeCore.placements(network, EDGE),
            edge_node=EDGE,
            nodes_wanted=pool.count,
            node_timeout_s=pool.node_timeout_s,
            resumed=self._records.record.checkpoints,
            starts_before=self._records.record.starts_before,
            plan=recovery.plan(),
        )
        self._placements = PlacementEvents(recovery)
        self._late_rows = LateRowCounts()
        # One thread per node waits for it, one checks for other drivers, and two delete and look up checkpoints.
        super().__init__(network.name, threads=pool.count + 3, observer=options.observer)
        self._thread.start()

    # -- for the user -----------------------------------------------------------------------------------

    def close(self) -> None:
        self._records.fence.close()
        super().close()

    def place_of(self, unit: str) -> str | None:
        """Return the node where a unit runs; None if it runs nowhere."""
        return self._controller.placement.units[unit].node

    def standby_of(self, unit: str) -> str | None:
        """Return the node of a unit's standby; None if it has none."""
        standby = self._controller.placement.units[unit].standby
        return None if standby is None else standby.node

    def survives_loss_of(self, unit: str) -> bool:
        """Return True if a unit's standby can take over: it began with the unit, or has a copy of its state."""
        standby = self._controller.placement.units[unit].standby
        return standby is not None and standby.ready

    def session_of(self, unit: str) -> str | None:
        """Return the session of the node where a unit runs, as its launcher named it."""
        node = self.place_of(unit)
        return None if node is None else self._controller.session_of(node)

    def checkpoint_of(self, unit: str) -> tuple[int, int] | None:
        """Return the (incarnation, number) of the checkpoint with which a unit would begin."""
        return self._controller.placement.units[unit].checkpoint

    def late_rows(self) -> dict[str, int]:
        """Return the number of late rows that each operator has left out, except operators without any."""
        return self._late_rows.by_operator()

    def take_checkpoints(self) -> None:
        """Have all units write checkpoints now. The observer is told of each that is recorded."""
        self._call(
            lambda: self._perform(SendMessage(node, TakeCheckpoints()) for node in self._controller.members)
        )

    # -- the loop -----------------------------------------------------------------------------------------

    async def _main(self) -> None:
        schemas = {name: kind.schema for name, kind in self._network.types.items()}
        traffic = self._options.traffic
        sent = None if traffic is None else traffic.counter(EDGE)
        self._links = Links(self._membership, schemas, self._received, self._broken, sent)
        self._address = self._links.listen()
        self._begin(self._watch_fence())
        try:
            for number in range(1, self._pool.count + 1):
                self._begin(self._keep_running(f"node-{number}"))
            for name, rows in self._sources.items():
                self._begin(self._feed(name, iter(rows)))
            looked_s = time.monotonic()
            while not self._stopped.is_set():
                now_s = time.monotonic()
                if now_s >= looked_s + self._pool.bounds.heartbeat_s:
                    looked_s = now_s
                    self._controller.at_work(self._pool.launcher.at_work())
                alive = set(self._controller.members)
                self._perform(self._controller.tick(now_s))
                for node in alive - set(self._controller.members):
                    self._tell(NodeLost(node))
                self._perform(self._edge.tick(now_s))
                self._connectors.released(self._edge.released)
                await asyncio.sleep(dataflow_tick_s)
        finally:
            await self._end_tasks()
            await self._links.close()
            self._pool.launcher.close()
            await self._connectors.closed()
            await self._loop.shutdown_default_executor()
            self._records.close()

    # -- other drivers --------------------------------------------------------------------------------------

    async def _watch_fence(self) -> None:
        """Stop soon after a younger driver has begun, even if there is nothing to write or deliver."""
        while True:
            await asyncio.sleep(dataflow_fence_s)
            try:
                await asyncio.to_thread(self._records.fence.check)
            except RunSuperseded:
                raise
            except (PeacefsError, OSError) as fault:
                log.info("cannot find out now whether another driver has begun: %s", fault)

    def _deliver_fenced(self, sink: str, rows: pa.RecordBatch) -> None:
        try:
            with self._records.fence.delivery():
                self._deliver(sink, self._sinks[sink], rows)
        except PeacefsError as refusal:
            self._fail(refusal.message)

    def committed(self, sink: str, number: int) -> None:
        """Note that a sink has committed rows. Called from its thread."""
        self._call(lambda: self._perform(self._edge.committed(time.monotonic(), sink, number)))

    def sink_failed(self, sink: str, error: BaseException) -> None:
        """Stop the query. Called from the thread of the sink."""
        self._call(lambda: self._fail(f"sink {sink!r} failed: {reason_of_failure(error)}"))

    # -- events ---------------------------------------------------------------------------------------------

    async def _keep_running(self, name: str) -> None:
        """Start a node, and start another one whenever it ends."""
        while True:
            self._begins(name)
            orders = NodeOrders(
                replace(self._member, name=name),
                secrets.token_hex(8),
                self._address,
                self._recovery,
                self._pool.bounds,
                self._records.checkpoints,
                self._options.traffic,
                self._options.row_counts,
            )
            await asyncio.to_thread(self._pool.launcher.run_node, orders)
            self._tell(NodeLost(name))
            self._perform(self._controller.node_lost(name))

    def _received(self, peer: str, message: Message) -> None:
        now_s = time.monotonic()
        if isinstance(message, ExchangeMessage | Placement):
            self._perform(self._edge.received(now_s, peer, message))
            self._room.set()
            return
        match message:
            case RowsLate():
                for operator in self._late_rows.add(message):
                    log.warning("query %r: %r has left out late rows", self._network.name, operator)
                return
            case NodeHeartbeat():
                self._is_there(peer)
            case StandbyReady(unit):
                if self._controller.standby_ready(message):
                    self._tell(StandbyHasCopy(unit))
            case UnitRecovered(unit, incarnation, load_us, replay_us):
                self._tell(RecoveryMeasured(unit, incarnation, load_us / 1e6, replay_us / 1e6))
        self._perform(self._controller.received(now_s, peer, message))

    def _broken(self, peer: str) -> None:
        self._controller.disconnected(peer)
        self._perform(self._edge.disconnected(time.monotonic(), peer))

    async def _feed(self, source: str, rows: Iterator[pa.RecordBatch]) -> None:
        kind, edge = self._network.types[source], self._edge
        async for batch in self._rows_of(source, rows, kind, lambda: edge.has_room(source)):
            self._perform(edge.offer(time.monotonic(), source, batch))
        self._perform(self._edge.end(time.monotonic(), source))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self._failure is not None:
                # Rows that were not delivered are not acknowledged.
                return
            match effect:
                case SendMessage(to, message) if to == EDGE:
                    if isinstance(message, Placement):
                        for event in self._placements.of(message):
                            self._tell(event)
                    self._loop.call_soon(self._received, EDGE, message)
                case SendMessage(to, message):
                    address = self._controller.address_of(to)
                    if address is not None:
                        self._links.send(to, address, message)
                case Deliver(sink, _, batch):
                    if self._connectors.put(sink, batch):
                        self.rows.taken[sink] += batch.rows.num_rows
                    else:
                        self._deliver_fenced(sink, batch.rows)
                case CommitRows(sink):
                    self._connectors.flush(sink)
                case SinkEnded():
                    if self._edge.ended:
                        self._ended.set()
                case RecordCheckpoint():
                    self._begin(self._write_record(effect))
                case DeleteCheckpoint(unit, checkpoint):
                    self._begin(self._records.tidy(partial(delete, self._records.checkpoints, unit, checkpoint)))
                case RetainCheckpoints(unit, oldest):
                    self._begin(self._records.tidy(partial(retain, self._records.checkpoints, unit, oldest)))
                case StopQuery(reason):
                    self._fail(reason)
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for the edge")

    async def _write_record(self, wanted: RecordCheckpoint) -> None:
        """Record a checkpoint durably, then tell the controller."""
        await self._records.write(wanted)
        self._tell(CheckpointTaken(wanted.unit, wanted.checkpoint[1], wanted.cost))
        self._perform(self._controller.recorded(wanted.unit, wanted.checkpoint))
        if self._options.datanode_of:
            held = await self._records.replicas(wanted)
            near = {node: held.get(datanode, 0) for node, datanode in self._options.datanode_of.items()}
            self._controller.replicas_at(wanted.unit, near)
