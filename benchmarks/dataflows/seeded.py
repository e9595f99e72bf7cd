"""Runs a dataflow in one thread and in virtual time: nodes, links, checkpoints, failures, and one seed.

The cores are the same as in real runs. Every event of a core is a *step*. A failure happens before a step with a
given number, so that a test can place a failure at every step of a run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush

import pyarrow as pa

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.controller import ControllerCore
from peacefs.dataflow.core.edge import EdgeCore
from peacefs.dataflow.core.effects import (
    CopyState,
    DeleteCheckpoint,
    Deliver,
    DropCopy,
    Effect,
    KeepCopy,
    LoadCheckpoint,
    LoadCopy,
    RecordCheckpoint,
    RetainCheckpoints,
    SendMessage,
    SinkEnded,
    StopQuery,
    StoreCheckpoint,
)
from peacefs.dataflow.core.messages import (
    CONTROLLER,
    CheckpointCost,
    Message,
    Placement,
    RowsLate,
    StandbyInStep,
    UnitRecovered,
    sequence_of,
)
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.hosts.checkpoint_store import MemoryCheckpoints, delete, name_of, retain
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.limits import dataflow_tick_s
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.admission import admit
from peacefs.protocol.errors import CheckpointCancelled, FileNotFound, QueryFailed
from peacefs.protocol.limits import state_page_bytes_choices

from .copy_sizes import CopySizes
from .costs import Costs, Flow, Traffic, VirtualLinks, VirtualTimes
from .failures import CutLink, Failure, Hang, Kill, KillRunning
from .outcome import Outcome
from .processor import Processor
from .recovery_clock import RecoveryClock

EDGE = "edge"
#: Small, because test states are small and often recreated: a dead node loses all of its states.
_STATE_BYTES = 1 << 20


@dataclass
class _Host:
    core: NodeCore
    states: UnitStates
    hung_until_s: float = 0.0
    #: None if processing takes no time.
    processor: Processor | None = None


class SeededRun:
    """A whole query in one thread and in virtual time, with its nodes, links, store, edge and controller.

    The same seed, rows and failures give the same run, step by step. Without costs, two invariants are checked
    after each event: every checkpoint that the controller has recorded is stored, and no unit has both replicas on
    one node. Tests and benchmarks make one and call `run` once.
    """

    def __init__(
        self,
        network: Network,
        technique: Technique,
        rows: Mapping[str, Sequence[pa.RecordBatch]],
        *,
        seed: int,
        nodes: int = 3,
        failures: Iterable[Failure | KillRunning] = (),
        bounds: Bounds | None = None,
        times: VirtualTimes | None = None,
    ) -> None:
        """Plan the query. Raises InvalidQuery if it cannot run."""
        recovery = admit(network, technique)
        self._times = times or VirtualTimes()
        costs = self._times.costs
        self._network = network
        self._recovery = recovery
        self._bounds = bounds or Bounds(page_bytes=min(state_page_bytes_choices), state_bytes_max=_STATE_BYTES)
        if costs is not None:
            # The processor handles one event at a time, however many rows the event has.
            self._bounds = replace(self._bounds, events_per_turn=sys.maxsize)
        self._chance = random.Random(seed)
        failures = list(failures)
        self._failures = sorted(
            (each for each in failures if isinstance(each, Failure)), key=lambda each: each.step
        )
        self._deaths = [each for each in failures if isinstance(each, KillRunning)]
        self._costs = costs
        self._tick_s = dataflow_tick_s if costs is None else costs.tick_s
        self._links = VirtualLinks(costs or Costs())
        self._clock = RecoveryClock(self._links)
        self._copy_sizes = None if costs is None else CopySizes(network, costs)
        self._pending = {source: list(batches) for source, batches in rows.items()}
        self._now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        # The number of times that each connection broke. A message sent before the last break does not arrive.
        self._connections: dict[frozenset[str], int] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._checkpoints = MemoryCheckpoints()
        self._edge = EdgeCore(recovery, self._bounds)
        for each in recovery.techniques:
            each.check_nodes(nodes)
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        self._controller = ControllerCore(
            [plan.name for plan in network.units],
            EdgeCore.placements(network, EDGE),
            edge_node=EDGE,
            nodes_wanted=nodes,
            plan=recovery.plan(),
        )
        self._nodes: dict[str, _Host] = {}
        self._starts: dict[str, int] = {}
        self.outcome = Outcome(sinks={sink.name: [] for sink in network.sinks})
        self._failed: str | None = None
        #: Nodes with events since the last check, and the placement at that check.
        self._touched: set[str] = set()
        self._checked: Placement | None = None
        for name in names:
            self._start(name)

    # -- the run ------------------------------------------------------------------------------------------

    def run(self, *, until_s: float = 60.0, until_recovered: Collection[str] = ()) -> Outcome:
        """Run until every sink has ended. Raises QueryFailed if the query stops or takes longer than `until_s`.

        With `until_recovered`, stop as soon as these units were lost and have recovered.
        """
        self._later(0.0, self._tick_controller)
        for death in self._deaths:
            self._at(death.at_s, partial(self._kill_running, death.unit))
        for source in self._network.sources:
            self._later(self._times.rows_every_s * self._chance.random(), partial(self._feed, source.name))
        while not self._edge.ended and not (
            until_recovered and self._clock.recovery_s.keys() >= set(until_recovered)
        ):
            if self._failed is not None:
                raise QueryFailed(self._failed)
            at_s, _, event = heappop(self._events)
            if at_s > until_s:
                raise QueryFailed(f"the query has not ended after {until_s} s of virtual time")
            self._now_s = at_s
            while self._failures and self._failures[0].step <= self.outcome.steps:
                self._fail(self._failures.pop(0))
            event()
            if self._costs is None:
                self._check()
        self.outcome.seconds = self._now_s
        self.outcome.recovery_s, self.outcome.bytes = self._clock.recovery_s, self._links.bytes
        self.outcome.page_bytes = self._links.page_bytes
        return self.outcome

    # -- events --------------------------------------------------------------------------------------------

    def _later(self, delay_s: float, event: Callable[[], None]) -> None:
        self._at(self._now_s + delay_s, event)

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (at_s, self._count, event))

    def _step(self, node: str, call: Callable[[], list[Effect]]) -> None:
        self.outcome.steps += 1
        self._perform_all(node, call())

    def _perform_all(self, node: str, effects: Sequence[Effect]) -> None:
        self._touched.add(node)
        for effect in effects:
            self._perform(node, effect)
        if node in self._nodes and self._nodes[node].core.has_work:
            self._later(0.0, partial(self._work, node, self._nodes[node].core))
        if node in self._nodes and self._clock.waits:
            self._clock.look(self._now_s, node, self._nodes[node].core, self._controller.placement)

    def _work(self, node: str, core: NodeCore) -> None:
        if core.has_work:
            self._on_node(node, core, lambda: core.work(self._now_s))

    def _on_node(self, name: str, core: NodeCore, call: Callable[[], list[Effect]]) -> None:
        """Call the core of a node, after a hang if it hangs. Do nothing if the node has another core by then."""
        host = self._nodes.get(name)
        if host is None or host.core is not core:
            return
        if host.hung_until_s > self._now_s:
            # Use exactly the same time for all delayed calls, so that they keep their order.
            self._at(host.hung_until_s, lambda: self._on_node(name, core, call))
            return
        if host.processor is None:
            self._step(name, call)
        else:
            self.outcome.steps += 1
            host.processor.do(call)

    def _start(self, name: str) -> None:
        if name in self._nodes:
            return
        self._starts[name] = self._starts.get(name, 0) + 1
        states = UnitStates(
            self._checkpoints,
            self._bounds,
            self._recovery,
            clock=lambda: self._now_s,
            # Background threads would save time, which is virtual here.
            in_background=False,
        )
        core = NodeCore(name, f"{name}/{self._starts[name]}", self._recovery, states.new, self._bounds)
        processor = None
        if self._costs is not None:
            processor = Processor(core, self._costs.processing_s, self._later, partial(self._perform_all, name))
        self._nodes[name] = _Host(core, states, processor=processor)
        self._later(self._tick_s * self._chance.random(), lambda: self._tick_node(name, core))

    def _tick_node(self, name: str, core: NodeCore) -> None:
        host = self._nodes.get(name)
        if host is None or host.core is not core:
            return
        self._on_node(name, core, lambda: core.tick(self._now_s))
        self._later(max(self._tick_s, host.hung_until_s - self._now_s), lambda: self._tick_node(name, core))

    def _tick_controller(self) -> None:
        self._step(CONTROLLER, lambda: self._controller.tick(self._now_s))
        self._step(EDGE, lambda: self._edge.tick(self._now_s))
        self._later(self._tick_s, self._tick_controller)

    def _feed(self, source: str) -> None:
        pending = self._pending[source]
        if not pending:
            self._step(EDGE, lambda: self._edge.end(self._now_s, source))
            return
        if self._edge.has_room(source):
            rows = pending.pop(0)
            self._step(EDGE, lambda: self._edge.offer(self._now_s, source, rows))
        self._later(self._times.rows_every_s * (0.5 + self._chance.random()), lambda: self._feed(source))

    # -- effects --------------------------------------------------------------------------------------------

    def _perform(self, node: str, effect: Effect) -> None:
        match effect:
            case SendMessage(to, message):
                self._send(node, to, message)
            case StoreCheckpoint():
                core = self._nodes[node].core
                if self._copy_sizes is not None:
                    size = self._copy_sizes.of(core, effect.unit, effect.incarnation)
                    self._links.count(self._now_s, Flow(Traffic.REPLICATION, effect.unit, node, "store"), size)
                self._later(self._stored_s(), lambda: self._store(node, core, effect))
            case LoadCheckpoint():
                core = self._nodes[node].core
                self._later(self._stored_s(), lambda: self._load(node, core, effect))
            case CopyState(unit, incarnation, number, _):
                core = self._nodes[node].core
                if self._copy_sizes is not None:
                    self._links.captured(unit, number, self._copy_sizes.of(core, unit, incarnation))
                self._later(self._memory_s(), lambda: self._copy(node, core, effect))
            case KeepCopy(unit, data):
                self._nodes[node].states.keep_copy(unit, data)
            case LoadCopy():
                core = self._nodes[node].core
                self._later(self._memory_s(), lambda: self._load_copy(node, core, effect))
            case DropCopy(unit):
                self._nodes[node].states.drop_copy(unit)
            case RecordCheckpoint(unit, checkpoint, _):
                # Inform the controller after a delay, as with a real disk.
                self._later(
                    self._times.latency_s * self._chance.random(),
                    lambda: self._step(CONTROLLER, lambda: self._controller.recorded(unit, checkpoint)),
                )
            case DeleteCheckpoint(unit, checkpoint):
                delete(self._checkpoints, unit, checkpoint)
                self._checked = None
            case RetainCheckpoints(unit, oldest):
                retain(self._checkpoints, unit, oldest)
                self._checked = None
            case Deliver(sink, _, batch):
                self.outcome.sinks[sink].append(batch.rows)
            case SinkEnded():
                pass
            case StopQuery(reason):
                self._failed = reason

    def _store(self, node: str, core: NodeCore, wanted: StoreCheckpoint) -> None:
        if node not in self._nodes or self._nodes[node].core is not core:
            return
        outcome: CheckpointCost | CheckpointCancelled
        told_to_wait = self._now_s < self._times.not_now_until_s and self._chance.random() < self._times.not_now
        if told_to_wait:
            wanted.capture.cancel()
            self.outcome.checkpoints_cancelled += 1
            outcome = CheckpointCancelled("not now")
        else:
            # The unit has continued since the capture. The captured state must not have changed.
            stored = wanted.capture.start().result()
            self.outcome.checkpoints_stored += 1
            self._links.count_pages(self._now_s, wanted.unit, stored.bytes_written)
            outcome = CheckpointCost(stored.pages_written, stored.pages_referred, stored.bytes_written)
        self._on_node(node, core, lambda: core.stored(wanted.unit, wanted.incarnation, wanted.number, outcome))

    def _load(self, node: str, core: NodeCore, wanted: LoadCheckpoint) -> None:
        unit, incarnation = wanted.unit, wanted.incarnation
        if node not in self._nodes or self._nodes[node].core is not core:
            return
        try:
            state = self._nodes[node].states.load(unit, wanted.checkpoint)
        except FileNotFound as gone:
            error = gone
            self._on_node(node, core, lambda: core.not_loaded(unit, incarnation, error))
        else:
            self._on_node(node, core, lambda: core.loaded(self._now_s, unit, incarnation, state))

    def _stored_s(self) -> float:
        """Return the duration of storing or loading a checkpoint."""
        return self._times.store_s * (0.5 + self._chance.random())

    def _memory_s(self) -> float:
        """Return the duration of a copy in memory; 0 with costs."""
        return self._times.latency_s * self._chance.random() if self._costs is None else 0.0

    def _copy(self, node: str, core: NodeCore, wanted: CopyState) -> None:
        host = self._nodes.get(node)
        if host is None or host.core is not core:
            return
        # The unit has continued since the capture.
        running = wanted.capture.start()
        running.result()
        data = host.states.take_copy(wanted.unit, running.sequence)
        self._on_node(
            node, core, lambda: core.copied(self._now_s, wanted.unit, wanted.incarnation, wanted.number, data)
        )

    def _load_copy(self, node: str, core: NodeCore, wanted: LoadCopy) -> None:
        host = self._nodes.get(node)
        if host is None or host.core is not core:
            return
        state = host.states.load_copy(wanted.unit)
        self._on_node(node, core, lambda: core.loaded(self._now_s, wanted.unit, wanted.incarnation, state))

    def _send(self, sender: str, to: str, message: Message) -> None:
        sender_host = EDGE if sender == CONTROLLER else sender
        receiver_host = EDGE if to == CONTROLLER else to
        link = frozenset({sender_host, receiver_host})
        connection = self._connections.get(link, 0)
        if self._costs is not None:
            told = CONTROLLER in (sender, to)
            arrival_s = self._links.send(self._now_s, sender_host, receiver_host, message, told=told)
        else:
            delay_s = 0.0 if len(link) == 1 else self._times.latency_s * (0.5 + self._chance.random())
            # Controller and edge are one process, so a node's messages to both share a connection (`links.py`).
            direction = sender_host, receiver_host
            arrival_s = max(self._now_s + delay_s, self._arrivals.get(direction, 0.0))
            self._arrivals[direction] = arrival_s

        def arrive() -> None:
            if self._connections.get(link, 0) == connection:
                self._receive(sender, to, message)

        self._at(arrival_s, arrive)

    def _receive(self, sender: str, to: str, message: Message) -> None:
        if to == EDGE:
            self._step(EDGE, lambda: self._edge.received(self._now_s, sender, message))
        elif to == CONTROLLER:
            self._step(CONTROLLER, lambda: self._at_controller(sender, message))
        elif to in self._nodes:
            core = self._nodes[to].core
            self._on_node(to, core, lambda: core.received(self._now_s, sender, message))

    def _at_controller(self, sender: str, message: Message) -> list[Effect]:
        match message:
            case RowsLate():
                self.outcome.late.add(message)
                return []
            case UnitRecovered():
                self.outcome.recoveries += 1
        effects = self._controller.received(self._now_s, sender, message)
        if effects and isinstance(message, StandbyInStep):
            self.outcome.caught_up.append((self.outcome.steps, message.unit))
        return effects

    # -- failures --------------------------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        match failure:
            case Kill(_, node, back_after_s) if node in self._nodes:
                host = self._nodes.pop(node)
                if host.processor is not None:
                    host.processor.stop()
                for other in (EDGE, *self._nodes):
                    self._cut(other, node)
                if back_after_s is not None:
                    self._later(back_after_s, partial(self._start, node))
            case Hang(_, node, for_s) if node in self._nodes:
                self._nodes[node].hung_until_s = self._now_s + for_s
            case CutLink(_, (one, other)):
                self._cut(one, other)

    def _kill_running(self, unit: str) -> None:
        """Kill the node that runs a unit. The controller notices after the detection time."""
        node = self._controller.placement.units[unit].node
        assert node in self._nodes, f"unit {unit!r} does not run"
        self.outcome.lost_node = node
        self._links.counting = False
        self._clock.died(node, self._nodes[node].core, self._controller.placement)
        self._fail(Kill(self.outcome.steps, node))
        if self._costs is not None:
            self._later(self._costs.detection_s, partial(self._notice, node))

    def _notice(self, node: str) -> None:
        self._clock.detected(self._now_s)
        self._step(CONTROLLER, lambda: self._controller.node_lost(node))

    def _cut(self, one: str, other: str) -> None:
        """Break a connection. Both ends notice before they send anything else."""
        link = frozenset({one, other})
        self._connections[link] = self._connections.get(link, 0) + 1
        for at, peer in ((one, other), (other, one)):
            if at == EDGE:
                self._step(EDGE, partial(self._edge.disconnected, self._now_s, peer))
            elif at in self._nodes:
                self._disconnect(at, peer)

    def _disconnect(self, at: str, peer: str) -> None:
        core = self._nodes[at].core
        self._on_node(at, core, lambda: core.disconnected(self._now_s, peer))

    # -- invariants --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check the invariants if the placement has changed. Record what is running."""
        for name in self._touched:
            if name == EDGE:
                held_bytes = self._edge.held_bytes
                self.outcome.source_held_bytes_max = max(self.outcome.source_held_bytes_max, held_bytes)
            elif name in self._nodes:
                host = self._nodes[name]
                self.outcome.note(name, host.core, host.states.copied_bytes)
        self._touched.clear()
        if self._controller.placement is self._checked:
            return
        self._checked = self._controller.placement
        for unit, where in self._checked.units.items():
            if where.node not in (None, EDGE):
                self.outcome.primaries.add((unit, where.node or ""))
            assert where.standby is None or where.standby.node != where.node, "both of a pair are on one node"
            if where.checkpoint is not None:
                assert sequence_of(where.checkpoint) in self._checkpoints.pages().sequences(name_of(unit))
