"""A query on a ring of nodes elsewhere: its sources, mappers and sink, in the program that started it.

The edge starts nodes and gives them their first places. From then on the ring runs by itself: neighbours decide
who is dead, who takes over, and who moves. A process that ends is replaced by a spare.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from peacefs.dataflow.limits import dataflow_incarnations_per_run_max, dataflow_tick_s
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.edge import EdgeOfRing, RingRelay
from peacefs.dataflow.ring.effects import AllDelivered, DeliverRows, LossFound, RingEffect, SendTo, TellUser
from peacefs.dataflow.ring.messages import (
    EDGE,
    URGENT,
    BeginNode,
    HostedMessage,
    Leave,
    NodeFailed,
    NodeFigures,
    NodeStarted,
    ProcessEnded,
)
from peacefs.dataflow.ring.program import Mapping as MappingOf
from peacefs.dataflow.ring.program import plan_of
from peacefs.dataflow.ring.view import RingMember
from peacefs.dataflow.techniques.admission import admit

from .edge_run import RunOptions
from .interface import Sink, Source
from .links import Links
from .membership import Member, Membership
from .node_pool import NodePool
from .query_run import HostedRun, check_ends, source_failed
from .ring_node import RingOrders
from .run_events import NodeLost, RingChanged

log = logging.getLogger("peacefs.dataflow")


class RingRun(HostedRun):
    """A query on a peer ring, seen from the program that started it: sources, mappers and sink.

    It starts a process for each place, and whenever a process ends, another one as a spare. The ring begins once
    all nodes have an address. From then on nodes take over from each other by themselves. `start_query` makes it
    for `PeerRing`. The user waits for it and closes it.
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
        admit(network, technique, options.guarantee)
        technique.check_nodes(pool.count)
        plan = plan_of(network)
        check_ends(plan.sources, [plan.sink], sources, sinks)
        assert technique.ring is not None
        self._network, self._ring, self._bounds = network, technique.ring, pool.bounds
        self._sources, self._sinks = sources, sinks
        self._sink_name = plan.sink
        self._mappings = {name: MappingOf(plan, name) for name in plan.mappers}
        self._relays = {
            name: RingRelay(plan.feeds(name), self._mappings[name]) for name in plan.stages if name in plan.goes_to
        }
        self._launcher = pool.launcher
        names = [f"node-{number}" for number in range(1, pool.count + 1)]
        self._members = arrange(names, self._ring.settings.r, self._ring.arrangement)
        self._member = Member(EDGE, secrets.token_hex(16), pool.tls)
        self._membership = Membership(self._member)
        self._edge: EdgeOfRing | None = None
        self._processes: dict[str, int] = {}
        self._lost: set[str] = set()
        self._figures: dict[str, NodeFigures] = {}
        self._begun = threading.Event()
        super().__init__(network.name, threads=pool.count, observer=options.observer)
        self._thread.start()

    # -- for the user -----------------------------------------------------------------------------------

    def ring(self) -> list[str]:
        """Return the nodes on the ring, clockwise, as known to the edge."""
        return [] if self._edge is None else list(self._edge.view.ring)

    def members(self) -> Mapping[str, RingMember]:
        return {} if self._edge is None else dict(self._edge.view.members)

    def process_of(self, node: str) -> int | None:
        """Return the process in which a node has started; None if it has not started yet."""
        return self._processes.get(node)

    def figures(self) -> Mapping[str, NodeFigures]:
        """Return the latest reports of the nodes about their work."""
        return dict(self._figures)

    def progress(self, source: str) -> tuple[int, int]:
        """Return the number of a source's last batch, and of the last batch whose results are all here."""
        return (0, 0) if self._edge is None else self._edge.progress(source)

    def wait_begun(self, timeout_s: float | None = None) -> None:
        """Wait until all nodes have their places."""
        if not self._begun.wait(timeout_s):
            raise TimeoutError("the nodes of the ring have not begun")

    def join(self, after: str) -> None:
        """Let a spare join in the middle of a node's interval."""
        self._loop.call_soon_threadsafe(self._invite, after)

    def leave(self, node: str) -> None:
        """Let a node leave the ring, once others have its state."""
        self._loop.call_soon_threadsafe(self._perform, [SendTo(node, Leave())])

    # -- the loop -----------------------------------------------------------------------------------------

    async def _main(self) -> None:
        self._links = Links(self._membership, {}, self._received, self._broken)
        self._address = self._links.listen()
        try:
            for member in self._members:
                self._begin(self._keep_running(member.name))
            while not self._stopped.is_set():
                if self._edge is not None:
                    self._perform(self._edge.tick(time.monotonic()))
                await asyncio.sleep(dataflow_tick_s)
        finally:
            await self._end_tasks()
            await self._links.close()
            self._launcher.close()
            await self._loop.shutdown_default_executor()

    # -- nodes ------------------------------------------------------------------------------------------------

    async def _keep_running(self, name: str) -> None:
        """Start a node, and whenever it ends, start another one as a spare with a new name."""
        for number in range(2, dataflow_incarnations_per_run_max):
            self._begins(_place(name))
            member = replace(self._member, name=name)
            orders = RingOrders(member, self._address, self._network, self._ring, self._bounds)
            await asyncio.to_thread(self._launcher.run_node, orders)
            self._note_lost(name)
            self._tell_others(name)
            name = f"{_place(name)}.{number}"

    def _tell_others(self, ended: str) -> None:
        """Tell the ring that a process has ended.

        Neighbours may not have had a connection whose end they could notice.
        """
        if self._edge is not None:
            others = [each.name for each in self._edge.view.members.values() if not each.gone]
            self._perform([SendTo(name, ProcessEnded(ended)) for name in others if name != ended])

    def _received(self, peer: str, message: HostedMessage) -> None:
        match message:
            case NodeStarted():
                self._node_started(message)
            case NodeFigures():
                self._figures[peer] = message
            case NodeFailed(reason):
                self._fail(reason)
            case _ if self._edge is not None:
                before = self._edge.view.revision
                self._perform(self._edge.received(time.time_ns() // 1000, peer, message))  # type: ignore[arg-type]
                if self._edge.view.revision != before:
                    for member in self._edge.view.members.values():
                        if member.gone:
                            self._note_lost(member.name)
                    self._tell(RingChanged(tuple(self._edge.view.ring)))
                self._room.set()

    def _note_lost(self, node: str) -> None:
        """Report the loss of a node once. Its process may end before neighbours notice, or long after."""
        if node not in self._lost:
            self._lost.add(node)
            self._tell(NodeLost(node))

    def _node_started(self, started: NodeStarted) -> None:
        name, address = started.name, started.address
        self._is_there(_place(name))
        self._processes[name] = started.process
        if self._edge is not None:
            member = RingMember(name, self._ring.arrangement.rack_of.get(_place(name), ""), address, version=1)
            effects = self._edge.joined(member)
            self._links.send(name, address, BeginNode(tuple(self._edge.view.members.values()), False))
            self._perform(effects)
            return
        # If a node dies before the ring begins, the node that was started after it gets its place.
        self._members = [
            replace(member, name=name, address=address) if _place(member.name) == _place(name) else member
            for member in self._members
        ]
        if all(member.address for member in self._members):
            self._begin_ring()

    def _begin_ring(self) -> None:
        self._edge = EdgeOfRing(self._members, self._mappings, self._ring.settings, self._relays)
        for member in self._members:
            self._links.send(member.name, member.address, BeginNode(tuple(self._members), True))
        for source, rows in self._sources.items():
            self._begin(self._feed(source, iter(rows)))
        self._begun.set()

    def _broken(self, peer: str) -> None:
        if self._edge is not None:
            self._perform(self._edge.disconnected(peer))

    def _invite(self, after: str) -> None:
        assert self._edge is not None
        self._perform(self._edge.invite(after))

    # -- sources ----------------------------------------------------------------------------------------------

    async def _feed(self, source: str, rows: Iterator[pa.RecordBatch]) -> None:
        edge, mapping = self._edge, self._mappings[source]
        assert edge is not None
        kind = self._network.types[source]
        async for batch in self._rows_of(source, rows, kind, lambda: edge.has_room(source)):
            try:
                hashed = mapping(batch)
            except Exception as error:  # whatever the user's function raises
                raise source_failed(source, error) from error
            if len(hashed):
                self._perform(edge.offer(time.time_ns() // 1000, source, hashed))
        self._perform(edge.end(source))

    # -- effects ----------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[RingEffect]) -> None:
        assert self._edge is not None
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    member = self._edge.view.members.get(to)
                    if member is not None and member.address:
                        self._links.send(to, member.address, message, urgent=isinstance(message, URGENT))
                case DeliverRows(rows):
                    self._deliver(self._sink_name, self._sinks[self._sink_name], rows)
                case AllDelivered():
                    self._ended.set()
                case LossFound(_, reason):
                    self._fail(reason)
                case TellUser(text):
                    log.warning("%s", text)
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for the edge")


def _place(name: str) -> str:
    """Return the name of the first of several nodes that were started one after the other."""
    return name.partition(".")[0]
