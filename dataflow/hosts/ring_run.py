"""A query on a ring of nodes elsewhere: its sources, mappers and sink, in the program that started it.

The edge starts nodes and gives them their first places. From then on the ring is on its own: who is dead, who
takes over, and who moves is decided by neighbours. A process that ends is started again, as a spare.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, Self

import pyarrow as pa

from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.edge import EdgeOfRing
from peacefs.dataflow.ring.effects import AllDelivered, DeliverRows, LossFound, RingEffect, Say, SendTo
from peacefs.dataflow.ring.messages import EDGE, Invite, Leave
from peacefs.dataflow.ring.program import Mapping as MappingOf
from peacefs.dataflow.ring.program import plan_of
from peacefs.dataflow.ring.view import Member
from peacefs.dataflow.techniques.admission import admit
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.protocol import limits
from peacefs.protocol.errors import InvalidQuery, PeacefsError, QueryFailed

from .edge_run import RunOptions
from .interface import Sink, Source
from .links import Links
from .ring_node import RingOrders
from .ring_wire import BeginNode, HostMessage, NodeFailed, NodeFigures, NodeStarted, RingMessageReader, encode
from .run_events import NodeLost, RingChanged, RunEvent

log = logging.getLogger("peacefs.dataflow")


class RingLauncher(Protocol):
    """Whoever starts nodes."""

    def run_node(self, orders: RingOrders) -> None:
        """Start a node, and return when it has ended. Called by a thread for each node."""
        ...

    def close(self) -> None:
        """End all nodes, so that every `run_node` returns."""
        ...


class RingRun:
    def __init__(
        self,
        network: Network,
        technique: PeerRing,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        *,
        nodes: int,
        launcher: RingLauncher,
        bounds: Bounds,
        options: RunOptions | None = None,
    ) -> None:
        self._options = options or RunOptions()
        admit(network, technique, self._options.guarantee)
        technique.check_nodes(nodes)
        plan = plan_of(network)
        for kind, wanted, given in (("source", set(plan.mappers), sources), ("sink", {plan.sink}, sinks)):
            missing = wanted ^ set(given)
            if missing:
                raise InvalidQuery(
                    f"{kind} {min(missing)!r} is in the query or in what was given, and not in both"
                )
        self._network, self._technique, self._bounds = network, technique, bounds
        self._sources, self._sink = sources, sinks[plan.sink]
        self._mappings = {name: MappingOf(plan, name) for name in plan.mappers}
        self._launcher = launcher
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        self._members = arrange(names, technique.settings.r, rack_of=technique.rack_of, spares=technique.spares)
        self._token = secrets.token_hex(16)
        self._edge: EdgeOfRing | None = None
        self._started: dict[str, str] = {}
        self._figures: dict[str, NodeFigures] = {}
        self._sent: dict[str, int] = {}
        self._ended, self._begun = threading.Event(), threading.Event()
        self._failure: str | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(2 * nodes + len(sources) + 2))
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run_loop, name=f"ring {network.name}", daemon=True)
        self._thread.start()

    # -- for the user -----------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the sink has had its last row. Raises QueryFailed if the query stopped."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"query {self._network.name!r} goes on after {timeout_s} s")
        if self._failure is not None:
            raise QueryFailed(self._failure)

    def ring(self) -> list[str]:
        """Return the nodes on the ring as the edge knows them, clockwise."""
        return [] if self._edge is None else list(self._edge.view.ring)

    def members(self) -> Mapping[str, Member]:
        return {} if self._edge is None else dict(self._edge.view.members)

    def figures(self) -> Mapping[str, NodeFigures]:
        """Return what nodes said last of what they have done."""
        return dict(self._figures)

    def progress(self, source: str) -> tuple[int, int]:
        """Return the numbers of the last batch of a source, and of the last of which all results are here."""
        return (0, 0) if self._edge is None else self._edge.progress(source)

    def wait_begun(self, timeout_s: float | None = None) -> None:
        """Wait until all nodes have their places."""
        if not self._begun.wait(timeout_s):
            raise TimeoutError("the nodes of the ring have not begun")

    def join(self, after: str) -> None:
        """Have a spare join in the middle of a node's interval."""
        self._loop.call_soon_threadsafe(self._invite, after)

    def leave(self, node: str) -> None:
        """Have a node leave the ring, once others have its state."""
        self._loop.call_soon_threadsafe(self._perform, [SendTo(node, Leave())])

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop -----------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        self._stopped, self._room = asyncio.Event(), asyncio.Event()
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:
            self._failure = f"the host of query {self._network.name!r} failed: {error!r}"
        finally:
            self._ended.set()
            self._loop.close()

    async def _main(self) -> None:
        self._links = Links(
            EDGE, self._token, {}, self._received, self._broken, encode=encode, new_reader=RingMessageReader
        )
        self._address = await self._links.listen()
        try:
            for member in self._members:
                self._begin(self._keep_running(member.name))
            while not self._stopped.is_set():
                if self._edge is not None:
                    self._perform(self._edge.tick())
                await asyncio.sleep(limits.dataflow_tick_s)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._links.close()
            self._launcher.close()
            await self._loop.shutdown_default_executor()

    def _stop(self) -> None:
        self._ended.set()
        self._stopped.set()

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stop()

    # -- nodes ------------------------------------------------------------------------------------------------

    async def _keep_running(self, name: str) -> None:
        """Start a node, and when it ends another, which is a spare and has another name."""
        for number in range(2, limits.dataflow_incarnations_per_run_max):
            orders = RingOrders(name, self._token, self._address, self._network, self._technique, self._bounds)
            await asyncio.to_thread(self._launcher.run_node, orders)
            self._tell(NodeLost(name))
            name = f"{name.partition('.')[0]}.{number}"

    def _received(self, peer: str, message: HostMessage) -> None:
        match message:
            case NodeStarted(name, address):
                self._node_started(name, address)
            case NodeFigures():
                self._figures[peer] = message
            case NodeFailed(reason):
                self._fail(reason)
            case _ if self._edge is not None:
                before = self._edge.view.revision
                self._perform(self._edge.received(peer, message))  # type: ignore[arg-type]
                if self._edge.view.revision != before:
                    self._tell(RingChanged(tuple(self._edge.view.ring)))
                self._room.set()

    def _node_started(self, name: str, address: str) -> None:
        self._started[name] = address
        rack = self._technique.rack_of.get(name.partition(".")[0], "")
        if self._edge is not None:
            member = Member(name, rack, address, version=1)
            effects = self._edge.joined(member)
            self._links.send(name, address, BeginNode(tuple(self._edge.view.members.values()), False))
            self._perform(effects)
        elif all(member.name in self._started for member in self._members):
            members = [replace(member, address=self._started[member.name]) for member in self._members]
            self._edge = EdgeOfRing(members, self._mappings, self._technique.settings)
            for member in members:
                self._links.send(member.name, member.address, BeginNode(tuple(members), True))
            for source, rows in self._sources.items():
                self._begin(self._feed(source, iter(rows)))
            self._begun.set()

    def _broken(self, peer: str) -> None:
        if self._edge is not None:
            self._perform(self._edge.disconnected(peer))

    def _invite(self, after: str) -> None:
        assert self._edge is not None
        token = self._edge.view.middle_of(after)
        if token is None or not self._edge.view.spares:
            log.warning("no spare can join after %s", after)
            return
        spare = min(self._edge.view.spares, key=lambda each: each.name)
        self._perform([SendTo(spare.name, Invite(token))])

    # -- sources ----------------------------------------------------------------------------------------------

    async def _feed(self, source: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Offer rows while there is room. The iterator may block: it is asked on another thread."""
        assert self._edge is not None
        kind, mapping = self._network.types[source], self._mappings[source]
        try:
            while (given := await asyncio.to_thread(next, rows, None)) is not None:
                batch = kind.conform(given)
                for first in range(0, batch.num_rows, limits.dataflow_batch_rows_max):
                    while not self._edge.has_room(source):
                        self._room.clear()
                        await self._room.wait()
                    hashed = mapping(batch.slice(first, limits.dataflow_batch_rows_max))
                    if len(hashed):
                        self._perform(self._edge.offer(time.time_ns() // 1000, source, hashed))
        except Exception as error:  # whatever the user's iterator, or function, raises
            self._fail(f"source {source!r} failed: {_reason(error)}")
            return
        self._perform(self._edge.end(source))

    # -- effects ----------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[RingEffect]) -> None:
        assert self._edge is not None
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    member = self._edge.view.members.get(to)
                    if member is not None and member.address:
                        self._links.send(to, member.address, message)
                case DeliverRows(rows):
                    self._deliver(rows)
                case AllDelivered():
                    self._ended.set()
                case LossFound(_, reason):
                    self._fail(reason)
                case Say(text):
                    log.warning("%s", text)
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for the edge")

    def _deliver(self, rows: pa.RecordBatch) -> None:
        try:
            self._sink(rows)
        except Exception as error:  # whatever the user's function raises
            self._fail(f"the sink failed: {_reason(error)}")

    def _tell(self, event: RunEvent) -> None:
        if self._options.observer is not None:
            self._options.observer(time.monotonic(), event)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, PeacefsError) else f"{type(error).__name__}: {error}"
