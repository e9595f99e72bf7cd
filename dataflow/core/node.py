"""A node: it runs the units that the controller placed on it, and takes part in the exchange.

Every event returns effects, in order. The host calls `received`, `disconnected` and `tick`, and `stored` or
`loaded` after a checkpoint was stored or loaded. Nothing else changes the node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.recovery.technique import Storage
from peacefs.dataflow.unit_state.interface import UnitState
from peacefs.protocol.errors import PeacefsError

from .bounds import Bounds
from .effects import Effect, SendMessage
from .exchange import ExchangeMessage
from .late_rows import LateRowReports
from .messages import (
    CONTROLLER,
    CheckpointCost,
    CheckpointRecorded,
    CheckpointStored,
    EventsKept,
    HistoryPart,
    Message,
    NodeHeartbeat,
    PairMessage,
    Placement,
    RestartPointRecorded,
    TakeCheckpoints,
)
from .node_units import NodeUnits
from .query_recovery import QueryRecovery
from .units.unit import HAUnit


class NodeCore:
    """Runs the units of one node, and connects them to the exchange.

    `NodeUnits` says which units are here. The core does no I/O: each event returns effects, which the host
    performs in order. `NodeProcess` drives it in a process, and `SeededRun` in seeded simulations.
    """

    def __init__(
        self,
        name: str,
        session: str,
        recovery: QueryRecovery,
        new_state: Callable[[str], UnitState],
        bounds: Bounds | None = None,
        *,
        address: str = "",
    ) -> None:
        self.name = name
        self._address = address
        self._session = session
        self._recovery = recovery
        self._bounds = bounds or Bounds()
        self._units = NodeUnits(name, session, recovery, new_state, self._bounds)
        self._late_rows = LateRowReports()
        self._beaten_s: float | None = None
        #: True if units have more to do. The host then calls `work`, after it has looked at other events.
        self.has_work = False

    # -- events ---------------------------------------------------------------------------------------

    def received(self, now_s: float, node: str, message: Message, *, later: bool = False) -> list[Effect]:
        """Process a message. If `later`, leave the work of the units to `work`."""
        effects = list(self._handled(now_s, node, message))
        if later:
            self.has_work = True
            return effects
        return effects + list(self._run(now_s))

    def _handled(self, now_s: float, node: str, message: Message) -> Iterator[Effect]:
        units = self._units
        if isinstance(message, ExchangeMessage):
            yield from units.exchange.received(now_s, node, message)
        elif isinstance(message, PairMessage):
            yield from units.from_pair(now_s, node, message)
        elif isinstance(message, Placement):
            yield from units.place(now_s, message)
        elif isinstance(message, CheckpointRecorded):
            if units.find(message.unit, message.incarnation) is not None:
                yield from units.upkeep[message.unit].recorded(message.number)
        elif isinstance(message, RestartPointRecorded):
            if units.find(message.unit, message.incarnation) is not None:
                yield from units.upkeep[message.unit].point_recorded(message.number)
        elif isinstance(message, TakeCheckpoints):
            for upkeep in units.upkeep.values():
                upkeep.hurry()
        elif isinstance(message, HistoryPart | EventsKept):
            if units.histories.received(message):
                yield from units.begin(now_s, message.unit)
        else:
            raise AssertionError(f"{type(message).__name__} is for the controller")

    def disconnected(self, now_s: float, node: str) -> list[Effect]:
        self._units.exchange.disconnected(now_s, node)
        self._units.pairs.disconnected(node)
        self._units.histories.disconnected()
        return list(self._run(now_s))

    def tick(self, now_s: float) -> list[Effect]:
        units = self._units
        effects: list[Effect] = []
        if self._beaten_s is None or now_s - self._beaten_s >= self._bounds.heartbeat_s:
            self._beaten_s = now_s
            beat = NodeHeartbeat(self.name, self._session, units.placement.version, self._address)
            effects.append(SendMessage(CONTROLLER, beat))
        for unit in list(units.running.values()):
            if unit.wants_time:
                effects += self._guarded(unit, partial(unit.on_time, int(now_s * 1_000_000)))
            if unit.name in units.running:
                # Must come before the point that they belong to.
                effects += units.histories.report()
                # The other half of their room is for rows that arrive until a checkpoint is stored.
                if unit.captures.lacking_bytes > self._bounds.buffer_bytes_max // 2:
                    units.upkeep[unit.name].hurry()
                effects += self._kept_up(now_s, unit)
        for ack in units.pairs.covered(now_s):
            effects += units.exchange.to_producer(ack.stream, [ack])
        return effects + list(self._run(now_s))

    def work(self, now_s: float) -> list[Effect]:
        """Let the units continue their work."""
        return list(self._run(now_s))

    def stored(
        self, unit: str, incarnation: int, number: int, outcome: CheckpointCost | PeacefsError
    ) -> list[Effect]:
        """Note that a checkpoint was stored, or why it was not."""
        running = self._units.find(unit, incarnation)
        if running is None:
            return []
        upkeep = self._units.upkeep[unit]
        if isinstance(outcome, PeacefsError):
            upkeep.failed(number)
            return []
        if self._recovery.technique_of(unit).stores is Storage.WINDOW_LOG:
            return list(upkeep.recorded(number))
        told = CheckpointStored(unit, incarnation, number, outcome, running.captures.event)
        return [SendMessage(CONTROLLER, told)]

    def copied(
        self, now_s: float, unit: str, incarnation: int, number: int, data: bytes | PeacefsError
    ) -> list[Effect]:
        """Take the bytes of a copy for a unit's standby, or the error that prevented it."""
        running = self._units.find(unit, incarnation)
        if running is None:
            return []
        return [*self._units.pairs.copied(running, number, data), *self._run(now_s)]

    def loaded(self, now_s: float, unit: str, incarnation: int, state: UnitState) -> list[Effect]:
        if not self._units.wants(unit, incarnation):
            return []
        return [*self._units.loaded(now_s, unit, incarnation, state), *self._run(now_s)]

    def wants(self, unit: str, incarnation: int) -> bool:
        """Return True if a checkpoint of a unit is still to be loaded."""
        return self._units.wants(unit, incarnation)

    def not_loaded(self, unit: str, incarnation: int, error: PeacefsError) -> list[Effect]:
        return list(self._units.not_loaded(unit, incarnation, error))

    # -- figures --------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes held by the fullest output."""
        held = [
            output.buffer.held_bytes for unit in self._units.running.values() for output in unit.outputs.values()
        ]
        return max(held, default=0)

    @property
    def queued_bytes(self) -> int:
        """Bytes queued at the fullest input."""
        queued = [source.queued_bytes for unit in self._units.running.values() for source in unit.inputs.values()]
        return max(queued, default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of the pages of all units, including copies that are still being written."""
        return sum(unit.state_bytes for unit in self._units.running.values())

    @property
    def operator_rows(self) -> Mapping[tuple[str, int, str], int]:
        """Number of rows that each operator received, by unit, incarnation and operator."""
        return {
            (unit.name, unit.incarnation, operator): rows
            for unit in self._units.running.values()
            for operator, rows in unit.operators.rows.items()
        }

    def produced(self, unit: str) -> Mapping[str, int]:
        """Return the number of the last row of each output of a unit that runs here."""
        return {stream: output.buffer.produced for stream, output in self._units.running[unit].outputs.items()}

    def sent(self, unit: str) -> Mapping[str, int]:
        """Return, for each output of a unit that runs here, up to which row it was sent to all consumers."""
        return {stream: output.sent for stream, output in self._units.running[unit].outputs.items()}

    @property
    def runs(self) -> Collection[str]:
        """The names of the units that run here."""
        return self._units.running.keys()

    @property
    def units(self) -> Mapping[str, Mapping[str, Position]]:
        """The units that run here, with their progress."""
        return {name: unit.positions for name, unit in self._units.running.items()}

    # -- units ------------------------------------------------------------------------------------------

    def _run(self, now_s: float) -> Iterator[Effect]:
        """Do everything that can be done now: request rows, process, send."""
        units = self._units
        yield from units.exchange.subscribe(now_s)
        self.has_work = False
        for unit in list(units.running.values()):
            lost = [stream for stream, source in unit.inputs.items() if source.lost]
            if lost and not self._recovery.technique_of(unit.name).tolerates_gaps:
                yield units.stop(unit, f"unit {unit.name!r} needs rows of {lost[0]!r} that are gone")
                continue
            yield from self._guarded(unit, partial(self._process, unit))
            yield from units.recovered(now_s, unit)
        yield from units.pairs.send_events()
        yield from units.histories.ask(now_s)
        yield from units.histories.report()
        yield from self._late_rows.report(units.running.values())
        yield from units.exchange.send_due()

    def _process(self, unit: HAUnit) -> None:
        if unit.process_all(self._bounds.events_per_turn):
            self.has_work = True

    def _kept_up(self, now_s: float, unit: HAUnit) -> list[Effect]:
        """Capture the checkpoint or the copy that is due. If the state cannot be captured, stop the unit."""
        effects: list[Effect] = []
        upkeep, pairs = self._units.upkeep[unit.name], self._units.pairs
        try:
            effects += upkeep.tick(now_s)
            if self._recovery.technique_of(unit.name).replicas.paired:
                effects += pairs.tick(now_s, unit)
                acknowledged = pairs.acknowledged(now_s, unit)
                if acknowledged is not None:
                    effects += upkeep.acknowledge(*acknowledged)
        except PeacefsError as error:
            effects.append(self._units.stop(unit, error.message))
        return effects

    def _guarded(self, unit: HAUnit, call: Callable[[], None]) -> list[Effect]:
        """Run an action of a unit. If it fails, stop the unit."""
        try:
            call()
        except PeacefsError as error:
            return [self._units.stop(unit, error.message)]
        return []
