"""A query on one node, in one thread and in virtual time, to measure its load. It simulates no failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.controller import ControllerCore
from peacefs.dataflow.core.edge import EdgeCore
from peacefs.dataflow.core.effects import (
    DeleteCheckpoint,
    Deliver,
    Effect,
    RecordCheckpoint,
    RetainCheckpoints,
    SendMessage,
    SinkEnded,
    StopQuery,
    StoreCheckpoint,
)
from peacefs.dataflow.core.messages import CONTROLLER, CheckpointCost, RowsLate
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.hosts.checkpoint_store import MemoryCheckpoints, delete, retain
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.limits import dataflow_tick_s
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.admission import admit
from peacefs.protocol.errors import QueryFailed

_EDGE, _NODE = "edge", "node-1"


class SampleRun:
    """Play a sample once with `run`, then read `rows_out`, `state_bytes_max` and `page_bytes`.

    Messages arrive before the time advances. A checkpoint is stored within one step of virtual time.
    """

    def __init__(self, network: Network, technique: Technique, bounds: Bounds) -> None:
        """`technique`: one that needs no second node."""
        recovery = admit(network, technique)
        self._checkpoints = MemoryCheckpoints()
        self._now_s = 0.0
        states = UnitStates(self._checkpoints, bounds, recovery, clock=lambda: self._now_s, in_background=False)
        self._node = NodeCore(_NODE, "sample", recovery, states.new, bounds)
        self._edge = EdgeCore(recovery, bounds)
        self._controller = ControllerCore(
            [plan.name for plan in network.units],
            EdgeCore.placements(network, _EDGE),
            edge_node=_EDGE,
            plan=recovery.plan(),
        )
        self._sent: deque[tuple[str, SendMessage]] = deque()
        self._ended: set[str] = set()
        self.rows_out = self.state_bytes_max = self.page_bytes = 0
        self.seconds = 0.0

    def run(self, batches: Mapping[str, Sequence[pa.RecordBatch]], every_s: float) -> None:
        """Play the batches of each source, one every `every_s` seconds. Raises QueryFailed."""
        pending = {source: deque(given) for source, given in batches.items()}
        due_s = 0.0
        while not self._edge.ended:
            self._perform(_NODE, self._node.tick(self._now_s))
            self._perform(CONTROLLER, self._controller.tick(self._now_s))
            self._perform(_EDGE, self._edge.tick(self._now_s))
            if self._now_s >= due_s and self._node.runs:
                due_s += every_s
                for source, rows in pending.items():
                    self._feed(source, rows)
            self.state_bytes_max = max(self.state_bytes_max, self._node.state_bytes)
            self._now_s += min(dataflow_tick_s, every_s)
        self.seconds = self._now_s

    def _feed(self, source: str, rows: deque[pa.RecordBatch]) -> None:
        if rows and self._edge.has_room(source):
            self._perform(_EDGE, self._edge.offer(self._now_s, source, rows.popleft()))
        elif not rows and source not in self._ended:
            self._ended.add(source)
            self._perform(_EDGE, self._edge.end(self._now_s, source))

    def _perform(self, sender: str, effects: Iterable[Effect]) -> None:
        """Perform effects, and everything that follows from them at this moment."""
        for effect in effects:
            self._perform_one(sender, effect)
        while self._sent:
            self._deliver(*self._sent.popleft())
        while self._node.has_work:
            self._perform(_NODE, self._node.work(self._now_s))

    def _perform_one(self, sender: str, effect: Effect) -> None:
        match effect:
            case SendMessage():
                self._sent.append((sender, effect))
            case Deliver(_, _, batch):
                self.rows_out += batch.rows.num_rows
            case SinkEnded():
                pass
            case StoreCheckpoint(unit, incarnation, number, capture):
                stored = capture.start().result()
                self.page_bytes += stored.bytes_written
                cost = CheckpointCost(stored.pages_written, stored.pages_referred, stored.bytes_written)
                for following in self._node.stored(unit, incarnation, number, cost):
                    self._perform_one(_NODE, following)
            case RecordCheckpoint(unit, checkpoint, _):
                for following in self._controller.recorded(unit, checkpoint):
                    self._perform_one(CONTROLLER, following)
            case RetainCheckpoints(unit, oldest):
                retain(self._checkpoints, unit, oldest)
            case DeleteCheckpoint(unit, checkpoint):
                delete(self._checkpoints, unit, checkpoint)
            case StopQuery(reason):
                raise QueryFailed(reason)
            case _:
                raise AssertionError(f"{type(effect).__name__} is not for a sample")

    def _deliver(self, sender: str, sent: SendMessage) -> None:
        to, message = sent.to, sent.message
        if to == CONTROLLER:
            told = isinstance(message, RowsLate)
            effects = [] if told else self._controller.received(self._now_s, sender, message)
        elif to == _EDGE:
            effects = self._edge.received(self._now_s, sender, message)
        else:
            effects = self._node.received(self._now_s, sender, message)
        for effect in effects:
            self._perform_one(to, effect)
