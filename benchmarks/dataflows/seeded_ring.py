"""Runs a peer ring in one thread and in virtual time: nodes, links, mappers and failures, all with one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

import pyarrow as pa

from peacefs.dataflow.recovery.ring_settings import RingArrangement, RingSettings
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.edge import EdgeOfRing, RingRelay
from peacefs.dataflow.ring.effects import (
    AllDelivered,
    DeliverRows,
    LeaveRing,
    LossFound,
    RingEffect,
    SendTo,
    Serialise,
    TellUser,
)
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.keyed_table import KeyedTable
from peacefs.dataflow.ring.messages import EDGE, Invite, Leave, News, PeerCheckpoint, RingMessage
from peacefs.dataflow.ring.reducer import Reduce, ReducerCore
from peacefs.dataflow.ring.tokens import WHOLE, Interval
from peacefs.dataflow.ring.view import RingMember

from .failures import CutLink, Failure, Hang, Kill


@dataclass(frozen=True)
class KillSet:
    """Several nodes die at the same moment, before a step."""

    step: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Move:
    """Before a step, a node takes over half of the interval before its own."""

    step: int
    node: str


@dataclass(frozen=True)
class Join:
    """Before a step, a spare node joins the ring after another node."""

    step: int
    spare: str
    after: str


@dataclass(frozen=True)
class LeaveAt:
    """Before a step, a node is asked to leave."""

    step: int
    node: str


@dataclass(frozen=True)
class RingFunctions:
    """The function that a ring applies to rows and its state tables, and the mappers that process its output."""

    reduce: Reduce
    new_table: Callable[[], KeyedTable]
    relays: Mapping[str, RingRelay] = field(default_factory=dict)


@dataclass(frozen=True)
class RingTimes:
    """Average durations in a seeded run of a ring."""

    batch_every_s: float = 0.05
    latency_s: float = 0.002
    serialise_s: float = 0.02
    #: Processing time per row.
    row_s: float = 0.0
    tick_s: float = 0.05
    #: The clock error of each mapper.
    clock_skew_s: Mapping[str, float] = field(default_factory=dict)


RingEvent = Failure | KillSet | Move | Join | LeaveAt


@dataclass
class RingOutcome:
    """The outcome of a run."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    losses: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    #: Nodes that were refused because another node had taken their place.
    refused: list[str] = field(default_factory=list)
    replayed_rows: int = 0
    checkpoint_bytes: int = 0
    messages: int = 0
    #: The number of messages about changes of the ring, and of checkpoints that are whole copies.
    news: int = 0
    copies: int = 0
    #: When each node was killed, in order.
    killed_s: dict[str, float] = field(default_factory=dict)


@dataclass
class _SeededNode:
    core: ReducerCore
    working: bool = False
    hung_until_s: float = 0.0


class SeededRing:
    """A whole peer ring in one thread and in virtual time: nodes, links, mappers and the sink.

    The same seed, batches and events give the same run, step by step. Tests and `benchmarks/papers/ring_scale.py`
    make one, call `run` once, and look at `outcome` and at the states of `owners`.
    """

    def __init__(
        self,
        settings: RingSettings,
        batches: Mapping[str, Sequence[HashedRows]],
        functions: RingFunctions,
        *,
        seed: int,
        nodes: int = 4,
        arrangement: RingArrangement | None = None,
        events: Iterable[RingEvent] = (),
        times: RingTimes | None = None,
    ) -> None:
        """`batches` are the input of mappers that are not relays. `nodes` excludes the spares."""
        arrangement = arrangement or RingArrangement()
        self._settings = settings
        self._chance = random.Random(seed)
        self._functions, self._times = functions, times or RingTimes()
        names = [f"node-{number}" for number in range(1, nodes + arrangement.spares + 1)]
        self._members = arrange(names, settings.r, arrangement)
        self._skew_us = {name: int(skew * 1e6) for name, skew in self._times.clock_skew_s.items()}
        self._pending = {mapper: list(given) for mapper, given in batches.items()}
        self._planned = sorted(events, key=lambda each: each.step)
        self._now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._connections: dict[frozenset[str], int] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._done = self._ended_early = False
        self.outcome = RingOutcome()
        self._mappers = [*batches, *functions.relays]
        self.edge = EdgeOfRing(self._members, self._mappers, settings, functions.relays)
        self._nodes: dict[str, _SeededNode] = {}
        for name in names:
            self._start(name, self._members, begins=True)

    # -- the run -----------------------------------------------------------------------------------------

    def run(self, *, until_s: float = 60.0, until: Callable[[], bool] | None = None) -> RingOutcome:
        """Run until all results are at the sink or `until` returns True. Raises TimeoutError after `until_s`."""
        self._later(0.0, self._tick_edge)
        for mapper in self._pending:
            self._later(self._times.batch_every_s * self._chance.random(), partial(self._feed, mapper))
        while not self._done and not self._ended_early and not (until is not None and until()):
            at_s, _, event = heappop(self._events)
            if at_s > until_s:
                raise TimeoutError(f"the run has not ended after {until_s} s of virtual time")
            self._now_s = at_s
            while self._planned and self._planned[0].step <= self.outcome.steps:
                self.happen(self._planned.pop(0))
            event()
        self.outcome.seconds = self._now_s
        self.outcome.replayed_rows += sum(node.core.replayed_rows for node in self._nodes.values())
        return self.outcome

    @property
    def cores(self) -> Mapping[str, ReducerCore]:
        """The cores of the living nodes."""
        return {name: node.core for name, node in self._nodes.items()}

    def owners(self) -> dict[str, list[KeyedTable]]:
        """Return the states of the intervals that each node owns."""
        return {
            name: [fragment.table for fragment in node.core.fragments() if fragment.primary]
            for name, node in self._nodes.items()
        }

    @property
    def now_s(self) -> float:
        return self._now_s

    def owned(self, intervals: Iterable[Interval]) -> bool:
        """Return whether each interval has a living owner that has finished its replay."""
        for interval in intervals:
            whole = 0
            for arc in self.edge.view.arcs_within(interval):
                node = self._nodes.get(arc.owner or "")
                if node is None or node.core.has_work:
                    return False
                mine = [each for each in node.core.fragments() if arc.interval.contains(each.interval)]
                whole += sum(
                    each.interval.high - each.interval.low for each in mine if each.primary and not each.waits_for
                )
            if whole != interval.high - interval.low:
                return False
        return True

    @property
    def in_transition(self) -> bool:
        """True while a node moves, joins or leaves, according to the edge."""
        return any(member.in_transition for member in self.edge.view.members.values())

    # -- events ------------------------------------------------------------------------------------------

    def _later(self, delay_s: float, event: Callable[[], None]) -> None:
        self._at(self._now_s + delay_s, event)

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (at_s, self._count, event))

    def _start(self, name: str, members: Iterable[RingMember], *, begins: bool) -> None:
        core = ReducerCore(
            self._now_s,
            name,
            members,
            self._mappers,
            self._functions.reduce,
            self._functions.new_table,
            self._settings,
            begins=begins,
        )
        self._nodes[name] = _SeededNode(core)
        self._later(self._times.tick_s * self._chance.random(), partial(self._tick_node, name, core))

    def _on_node(self, name: str, core: ReducerCore, call: Callable[[], list[RingEffect]]) -> None:
        node = self._nodes.get(name)
        if node is None or node.core is not core:
            return
        if node.hung_until_s > self._now_s:
            self._at(node.hung_until_s, partial(self._on_node, name, core, call))
            return
        self.outcome.steps += 1
        self._perform(name, call())
        if core.has_work and not node.working and name in self._nodes:
            node.working = True
            self._later(max(core.queue_rows, 1) * self._times.row_s, partial(self._work, name, core))

    def _work(self, name: str, core: ReducerCore) -> None:
        node = self._nodes.get(name)
        if node is not None and node.core is core:
            node.working = False
            self._on_node(name, core, lambda: core.work(self._now_s, 64))

    def _tick_node(self, name: str, core: ReducerCore) -> None:
        node = self._nodes.get(name)
        if node is None or node.core is not core:
            return
        busy = 1.0 if node.working else 0.0
        self._on_node(name, core, lambda: core.tick(self._now_s, busy=busy))
        self._later(max(self._times.tick_s, node.hung_until_s - self._now_s), partial(self._tick_node, name, core))

    def _tick_edge(self) -> None:
        self._on_edge(lambda: self.edge.tick(self._now_s))
        self._later(self._times.tick_s, self._tick_edge)

    def _on_edge(self, call: Callable[[], list[RingEffect]]) -> None:
        self.outcome.steps += 1
        self._perform(EDGE, call())

    def _feed(self, mapper: str) -> None:
        pending = self._pending[mapper]
        if not pending:
            self._on_edge(lambda: self.edge.end(mapper))
            return
        if self.edge.has_room(mapper):
            rows = pending.pop(0)
            now_us = int(self._now_s * 1e6) + self._skew_us.get(mapper, 0)
            self._on_edge(lambda: self.edge.offer(max(now_us, 0), mapper, rows))
        self._later(self._times.batch_every_s * (0.5 + self._chance.random()), partial(self._feed, mapper))

    # -- effects -----------------------------------------------------------------------------------------

    def _perform(self, name: str, effects: Sequence[RingEffect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    self._send(name, to, message)
                case Serialise():
                    core = self._nodes[name].core
                    self._later(
                        self._times.serialise_s * self._chance.random(),
                        partial(self._serialise, name, core, effect),
                    )
                case DeliverRows(rows):
                    self.outcome.rows.append(rows)
                case AllDelivered():
                    self._done = True
                case LeaveRing(reason):
                    self.outcome.refused.append(name)
                    self.outcome.said.append(reason)
                    self._drop(name)
                case LossFound(interval, reason):
                    self.outcome.losses.append(reason)
                    self._ended_early = self._ended_early or interval == WHOLE
                case TellUser(text):
                    self.outcome.said.append(text)

    def _serialise(self, name: str, core: ReducerCore, wanted: Serialise) -> None:
        changes = wanted.changes() if wanted.changes is not None else ()
        everything = wanted.everything() if wanted.everything is not None else ()
        self._on_node(
            name,
            core,
            lambda: core.serialised(self._now_s, wanted.interval, wanted.number, changes, everything),
        )

    def _send(self, sender: str, to: str, message: RingMessage) -> None:
        self.outcome.messages += 1
        self.outcome.news += isinstance(message, News)
        if isinstance(message, PeerCheckpoint):
            self.outcome.copies += message.base is None
            self.outcome.checkpoint_bytes += sum(map(len, message.entries))
        link = frozenset({sender, to})
        connection = self._connections.get(link, 0)
        arrival_s = max(
            self._now_s + self._times.latency_s * (0.5 + self._chance.random()),
            self._arrivals.get((sender, to), 0.0),
        )
        self._arrivals[sender, to] = arrival_s

        def arrive() -> None:
            if self._connections.get(link, 0) != connection:
                return
            if to == EDGE:
                self._on_edge(lambda: self.edge.received(int(self._now_s * 1e6), sender, message))
            elif to in self._nodes:
                core = self._nodes[to].core
                self._on_node(to, core, lambda: core.received(self._now_s, sender, message))

        self._at(arrival_s, arrive)

    # -- failures and changes ----------------------------------------------------------------------------

    def happen(self, event: RingEvent) -> None:
        match event:
            case KillSet(_, nodes):
                for name in nodes:
                    self._kill(name)
            case Kill(_, name, back_after_s):
                if name in self._nodes:
                    members = list(self._members)
                    self._kill(name)
                    if back_after_s is not None:
                        self._later(back_after_s, partial(self._come_back, name, members))
            case Hang(_, name, for_s) if name in self._nodes:
                self._nodes[name].hung_until_s = self._now_s + for_s
            case CutLink(_, (one, other)):
                self._cut(one, other)
            case Move(_, name) if name in self._nodes:
                self._tell(name, lambda core: core.take_half(self._now_s))
            case Join(_, spare, after) if spare in self._nodes and after in self._nodes:
                token = self.edge.view.middle_of(after)
                if token is not None:
                    self._tell(spare, lambda core: core.received(self._now_s, EDGE, Invite(token)))
            case LeaveAt(_, name) if name in self._nodes:
                self._tell(name, lambda core: core.received(self._now_s, EDGE, Leave()))

    def _tell(self, name: str, call: Callable[[ReducerCore], list[RingEffect]]) -> None:
        core = self._nodes[name].core
        self._on_node(name, core, lambda: call(core))

    def _kill(self, name: str) -> None:
        if name in self._nodes:
            self.outcome.killed_s[name] = self._now_s
            self._drop(name)
            for other in (EDGE, *list(self._nodes)):
                self._cut(other, name)

    def _drop(self, name: str) -> None:
        self.outcome.replayed_rows += self._nodes.pop(name).core.replayed_rows

    def _come_back(self, name: str, members: Collection[RingMember]) -> None:
        """Restart a node with its old name and token, and empty memory."""
        if name not in self._nodes:
            self._start(name, [replace(each) for each in members], begins=False)

    def _cut(self, one: str, other: str) -> None:
        link = frozenset({one, other})
        self._connections[link] = self._connections.get(link, 0) + 1
        for at, peer in ((one, other), (other, one)):
            if at == EDGE:
                self._on_edge(partial(self.edge.disconnected, peer))
            elif at in self._nodes:
                core = self._nodes[at].core
                self._on_node(at, core, partial(core.disconnected, self._now_s, peer))
