"""A node of a ring, as a process or as a task: it ends when the connection to the edge breaks."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.ring_settings import RingPlan
from peacefs.dataflow.ring.effects import LeaveRing, RingEffect, SendTo, Serialise
from peacefs.dataflow.ring.messages import (
    Beat,
    BeginNode,
    HostedMessage,
    NodeFailed,
    NodeFigures,
    NodeStarted,
    PeerCheckpoint,
    RingMessage,
)
from peacefs.dataflow.ring.program import Reducing, plan_of, tables
from peacefs.dataflow.ring.reducer import ReducerCore
from peacefs.protocol.errors import PeacefsError
from peacefs.state import PageManager

from .membership import Member
from .node_main import run_as_ordered
from .node_shell import EDGE, NodeShell

# The busy share is measured over this many seconds, since a single piece of work may take many ticks.
ring_busy_over_s: Final = 1.0
# Maximum number of rows that a node processes before it listens again, and the time that this should take.
ring_work_rows: Final = 65_536
ring_work_s: Final = 0.01
# How often a node reports what it has done.
ring_figures_s: Final = 0.5


log = logging.getLogger("peacefs.dataflow")


@dataclass(frozen=True)
class RingOrders:
    """Orders for a node of a ring, given when its process starts."""

    member: Member
    edge_address: str
    network: Network
    ring: RingPlan
    bounds: Bounds

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def query(self) -> str:
        return self.network.name


class RingNode(NodeShell):
    """The shell of one `ReducerCore`: it passes the core messages and the time, and performs its effects.

    Only the bytes of checkpoints are made on other threads. The node also ends when the ring has no place for it.
    This module, run as a process, and Spark tasks (`executors_host.py`) call `run`.
    """

    def __init__(self, orders: RingOrders) -> None:
        beat_s = orders.ring.settings.beat_s
        super().__init__(orders.member, orders.edge_address, {}, Beat(), beat_s)
        self._orders = orders
        self._plan = plan_of(orders.network)
        self._core: ReducerCore | None = None
        # Messages from nodes that started earlier.
        self._early: list[tuple[str, RingMessage]] = []
        # Time spent working since the last measurement, and the measured share before that.
        self._busy_s, self._busy = 0.0, 0.0
        self._told_s = self._measured_s = time.monotonic()
        self._work_rows = ring_work_rows
        self._checkpoint_bytes = 0
        self._checkpoint_share = 0.0

    # -- events ---------------------------------------------------------------------------------------

    def _begun(self, address: str) -> None:
        self._tell_edge(NodeStarted(self._orders.name, address, os.getpid()))

    def _tick(self, now_s: float) -> Mapping[str, str] | None:
        core = self._core
        if core is None:
            return None
        if now_s >= self._measured_s + ring_busy_over_s:
            self._busy = min(1.0, self._busy_s / (now_s - self._measured_s))
            self._busy_s, self._measured_s = 0.0, now_s
        self._perform(core.tick(now_s, busy=self._busy))
        if now_s >= self._told_s + ring_figures_s:
            self._told_s = now_s
            self._tell_edge(self._figures(core))
        return core.followers

    def _tell_edge(self, message: HostedMessage) -> None:
        self._links.send(EDGE, self._orders.edge_address, message)

    def _received(self, peer: str, message: HostedMessage) -> None:
        if isinstance(message, BeginNode):
            self._begin_core(message)
        elif self._core is None:
            self._early.append((peer, message))  # type: ignore[arg-type]
        else:
            begun_s = time.monotonic()
            self._perform(self._core.received(begun_s, peer, message))  # type: ignore[arg-type]
            self._busy_s += time.monotonic() - begun_s

    def _begin_core(self, message: BeginNode) -> None:
        pages = PageManager(
            page_bytes=self._orders.bounds.page_bytes, memory_bytes_max=self._orders.bounds.state_bytes_max
        )
        self._core = ReducerCore(
            time.monotonic(),
            self._orders.name,
            message.members,
            tuple(self._plan.mappers),
            Reducing(self._plan),
            tables(self._plan, pages),
            self._orders.ring.settings,
            begins=message.begins,
        )
        # The first messages may keep the node busy for long.
        self._beats.note(self._core.followers)
        early, self._early = self._early, []
        for peer, each in early:
            self._received(peer, each)

    def _disconnected(self, peer: str) -> None:
        if self._core is not None and peer != EDGE:
            self._perform(self._core.disconnected(time.monotonic(), peer))

    def _work(self) -> None:
        assert self._core is not None
        begun_s = time.monotonic()
        try:
            queued_rows = self._core.queue_rows
            effects = self._core.work(begun_s, self._work_rows)
        except PeacefsError as error:
            self._tell_edge(NodeFailed(error.message))
            return
        self._pace(queued_rows - self._core.queue_rows, time.monotonic() - begun_s)
        self._perform(effects)
        self._busy_s += time.monotonic() - begun_s

    def _pace(self, rows: int, worked_s: float) -> None:
        """Adapt the number of rows per turn of work, so that beats and neighbours do not wait for long."""
        in_time = rows * ring_work_s / max(worked_s, 1e-6)
        self._work_rows = min(ring_work_rows, max(1, int(0.5 * (self._work_rows + in_time))))

    # -- effects --------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[RingEffect]) -> None:
        assert self._core is not None
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    self._send(to, message)
                case Serialise():
                    self._begin(self._serialise(effect))
                case LeaveRing(reason):
                    log.warning("%s", reason)
                    self._ended.set()
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for a node")
        if self._core.has_work:
            self._work_soon()

    def _send(self, to: str, message: RingMessage) -> None:
        assert self._core is not None
        address = self._addresses.get(to) or self._core.address_of(to)
        if address:
            self._addresses[to] = address
            if isinstance(message, PeerCheckpoint):
                self._checkpoint_bytes += sum(map(len, message.entries))
            self._links.send(to, address, message)

    async def _serialise(self, wanted: Serialise) -> None:
        """Make the bytes of a checkpoint on another thread, while the node continues."""
        assert self._core is not None
        fragment = next((each for each in self._core.fragments() if each.interval == wanted.interval), None)
        try:
            changes = await asyncio.to_thread(wanted.changes) if wanted.changes is not None else ()
            everything = await asyncio.to_thread(wanted.everything) if wanted.everything is not None else ()
        except Exception as error:  # the fragment was split meanwhile
            log.info("a checkpoint was not made: %s", error)
            self._perform(self._core.not_serialised(time.monotonic(), wanted.interval, wanted.number))
            return
        changed = 0 if fragment is None else fragment.table.changed_keys
        self._perform(self._core.serialised(time.monotonic(), wanted.interval, wanted.number, changes, everything))
        if fragment is not None and wanted.changes is not None and fragment.table.known_keys:
            self._checkpoint_share = changed / fragment.table.known_keys

    def _figures(self, core: ReducerCore) -> NodeFigures:
        fragments = list(core.fragments())
        return NodeFigures(
            time.process_time(),
            core.processed_rows,
            core.replayed_rows,
            core.waiting_rows,
            sum(each.backup.held_bytes for each in fragments),
            sum(each.table.known_keys for each in fragments if each.primary),
            self._checkpoint_bytes,
            self._checkpoint_share,
            sum(each.primary for each in fragments),
        )


if __name__ == "__main__":
    run_as_ordered(lambda orders: RingNode(orders).run())
