"""A node: it runs the units that the controller placed on it, and takes part in the exchange.

Every event returns effects, in order. The host calls `received`, `disconnected` and `tick`, and `stored` or
`loaded` when a checkpoint was. Nothing else changes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from peacefs.dataflow.core.technique import (
    Acknowledge,
    AcknowledgeCovered,
    Action,
    Guard,
    StandbyKind,
    TakeCheckpoint,
    Technique,
    TrimByCauses,
)
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.unit_state.interface import UnitState
from peacefs.protocol.errors import PeacefsError

from .bounds import Bounds
from .determinants import EventLog
from .effects import DropCopy, Effect, LoadCheckpoint, LoadCopy, SendMessage, StoreCheckpoint
from .exchange import Exchange
from .histories import Histories
from .late_rows import LateRowReports
from .messages import (
    CONTROLLER,
    CheckpointCost,
    CheckpointRecorded,
    CheckpointStored,
    CopyHeld,
    CopyPiece,
    Determinants,
    DeterminantsHeld,
    EventsHappened,
    EventsKept,
    HistoryPart,
    HistoryWanted,
    Message,
    NodeAlive,
    NodeHeartbeat,
    Placement,
    RestartPointReached,
    RestartPointRecorded,
    RowsLate,
    StandbyInStep,
    StandbyReady,
    TrimOutput,
    UnitPlacement,
    UnitRecovered,
    UnitStopped,
)
from .output_buffer import RowStage
from .pairs import Pairs
from .unit import HAUnit
from .unit_start import UnitStart


class NodeCore:
    """The units of one node: it begins, runs, recovers and stops them as the latest placement says.

    A unit runs here only under the incarnation that the placement gives this node, as the unit's primary or as its
    standby. The core does no I/O: each event returns effects, which the host performs in order. `NodeProcess`
    drives it in a process, and `SeededRun` under a seed.
    """

    def __init__(
        self,
        name: str,
        session: str,
        network: Network,
        technique: Technique,
        new_state: Callable[[str], UnitState],
        bounds: Bounds | None = None,
        *,
        address: str = "",
    ) -> None:
        self.name = name
        self._address = address
        self._session = session
        self._network = network
        self._technique = technique
        self._new_state = new_state
        self._bounds = bounds or Bounds()
        self._exchange = Exchange(network, technique, retry_s=self._bounds.subscribe_retry_s)
        self._pairs = Pairs(network, technique)
        self._late_rows = LateRowReports()
        self._histories = Histories(network, technique, retry_s=self._bounds.subscribe_retry_s)
        self._placement = Placement(0, {})
        self._units: dict[str, HAUnit] = {}
        self._guards: dict[str, Guard] = {}
        # Units whose checkpoint is being loaded, with the incarnation that they will have.
        self._loading: dict[str, int] = {}
        self._placed_s: dict[str, float] = {}
        # Events that a unit which takes over has to repeat.
        self._scripts: dict[str, EventLog] = {}
        # Units that began again and have not caught up: when they began to load, and when to process.
        self._recovering: dict[str, tuple[float, float]] = {}
        self._beaten_s: float | None = None
        #: True if units have more to do: `work` is to be called as soon as other events were looked at.
        self.has_work = False

    # -- events ---------------------------------------------------------------------------------------

    def received(self, now_s: float, node: str, message: Message, *, later: bool = False) -> list[Effect]:
        """Take a message. With `later` what follows from it is left for `work`."""
        effects: list[Effect] = []
        match message:
            case Placement():
                effects += self._place(now_s, message)
            case CheckpointRecorded():
                unit = self._units.get(message.unit)
                if unit is not None and unit.incarnation == message.incarnation:
                    effects += self._act(unit, self._guards[unit.name].recorded(message.number))
            case RestartPointRecorded():
                unit = self._units.get(message.unit)
                if unit is not None and unit.incarnation == message.incarnation:
                    effects += self._act(unit, [Acknowledge(RowStage.SAFE, unit.recorded(message.number))])
            case HistoryPart() | EventsKept():
                if self._histories.received(message):
                    effects += self._begin(now_s, message.unit)
            case NodeHeartbeat() | CheckpointStored() | RestartPointReached() | UnitStopped() | UnitRecovered():
                raise AssertionError(f"{type(message).__name__} is for the controller")
            case EventsHappened() | HistoryWanted() | StandbyReady() | NodeAlive() | RowsLate():
                raise AssertionError(f"{type(message).__name__} is for the controller")
            case CopyPiece() | CopyHeld() | Determinants() | DeterminantsHeld() | TrimOutput() | StandbyInStep():
                if self._pairs.begins_anew(message):
                    self._loading.pop(message.unit, None)
                    if message.unit in self._units:
                        self._drop(message.unit)
                effects += self._load(now_s, self._pairs.received(node, message, self._units.get(message.unit)))
            case _:
                effects += self._exchange.received(now_s, node, message)
        if later:
            self.has_work = True
            return effects
        return effects + list(self._run(now_s))

    def disconnected(self, now_s: float, node: str) -> list[Effect]:
        self._exchange.disconnected(now_s, node)
        self._pairs.disconnected(node)
        self._histories.disconnected()
        return list(self._run(now_s))

    def tick(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._beaten_s is None or now_s - self._beaten_s >= self._bounds.heartbeat_s:
            self._beaten_s = now_s
            beat = NodeHeartbeat(self.name, self._session, self._placement.version, self._address)
            effects.append(SendMessage(CONTROLLER, beat))
        for unit in list(self._units.values()):
            if unit.wants_time:
                effects += self._guarded(unit, partial(unit.on_time, int(now_s * 1_000_000)))
            if unit.name in self._units:
                # Before a point that they belong to.
                effects += self._histories.report()
                # The other half of their room is for the rows that come until a checkpoint is stored.
                if unit.uncaptured_bytes > self._bounds.buffer_bytes_max // 2:
                    self._guards[unit.name].hurry()
                    unit.hurry()
                effects += self._kept_up(now_s, unit)
        for ack in self._pairs.covered(now_s):
            effects += self._exchange.to_producer(ack.stream, [ack])
        return effects + list(self._run(now_s))

    def work(self, now_s: float) -> list[Effect]:
        """Go on with what units have to do."""
        return list(self._run(now_s))

    def stored(
        self, unit: str, incarnation: int, number: int, outcome: CheckpointCost | PeacefsError
    ) -> list[Effect]:
        """Learn that a checkpoint was stored, or why it was not."""
        running = self._units.get(unit)
        if running is None or running.incarnation != incarnation:
            return []
        if isinstance(outcome, PeacefsError):
            self._guards[unit].failed(number)
            return []
        if self._technique.loads_itself:
            return list(self._act(running, self._guards[unit].recorded(number)))
        told = CheckpointStored(unit, incarnation, number, outcome, running.captured_event)
        return [SendMessage(CONTROLLER, told)]

    def copied(
        self, now_s: float, unit: str, incarnation: int, number: int, data: bytes | PeacefsError
    ) -> list[Effect]:
        """Learn the bytes of a copy for a unit's standby, or why there are none."""
        running = self._units.get(unit)
        if running is None or running.incarnation != incarnation:
            return []
        return [*self._pairs.copied(running, number, data), *self._run(now_s)]

    def loaded(self, now_s: float, unit: str, incarnation: int, state: UnitState) -> list[Effect]:
        if self._loading.get(unit) != incarnation:
            return []
        del self._loading[unit]
        return [*self._start(now_s, unit, incarnation, state), *self._run(now_s)]

    def wants(self, unit: str, incarnation: int) -> bool:
        """Return whether a checkpoint of a unit is still to be loaded."""
        return self._loading.get(unit) == incarnation

    def not_loaded(self, unit: str, incarnation: int, error: PeacefsError) -> list[Effect]:
        if self._loading.get(unit) != incarnation:
            return []
        del self._loading[unit]
        return [
            SendMessage(CONTROLLER, UnitStopped(unit, incarnation, f"unit {unit!r} cannot begin: {error.message}"))
        ]

    @property
    def held_bytes(self) -> int:
        """Bytes of the output that holds most."""
        held = [output.buffer.held_bytes for unit in self._units.values() for output in unit.outputs.values()]
        return max(held, default=0)

    @property
    def queued_bytes(self) -> int:
        """Bytes of the input that has most to process."""
        queued = [source.queued_bytes for unit in self._units.values() for source in unit.inputs.values()]
        return max(queued, default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of pages of all units, with the copies that are still being written."""
        return sum(unit.state_bytes for unit in self._units.values())

    @property
    def operator_rows(self) -> Mapping[tuple[str, int, str], int]:
        """Rows that each operator was given, by unit, incarnation and operator."""
        return {
            (unit.name, unit.incarnation, operator): rows
            for unit in self._units.values()
            for operator, rows in unit.operator_rows.items()
        }

    def produced(self, unit: str) -> Mapping[str, int]:
        """Return the last row of each output of a unit that runs here."""
        return {stream: output.buffer.produced for stream, output in self._units[unit].outputs.items()}

    def sent(self, unit: str) -> Mapping[str, int]:
        """Return up to which row the consumers of each output of a unit that runs here were sent it."""
        return {stream: output.sent for stream, output in self._units[unit].outputs.items()}

    @property
    def runs(self) -> Collection[str]:
        """The names of the units that run here."""
        return self._units.keys()

    @property
    def units(self) -> Mapping[str, Mapping[str, Position]]:
        """The units that run here, and how far they are."""
        return {name: unit.positions for name, unit in self._units.items()}

    # -- units ------------------------------------------------------------------------------------------

    def _place(self, now_s: float, placement: Placement) -> Iterator[Effect]:
        if placement.version <= self._placement.version:
            return
        self._placement = placement
        self._exchange.placed(placement)
        mine = {name: where for name, where in placement.units.items() if where.node == self.name}
        standbys = {name: where for name, where in placement.units.items() if self._is_standby(where)}
        valid = {name: where.incarnation for name, where in mine.items()}
        valid |= {name: where.standby.incarnation for name, where in standbys.items() if where.standby}
        for name, unit in list(self._units.items()):
            if valid.get(name) != unit.incarnation:
                self._drop(name)
        self._loading = {name: each for name, each in self._loading.items() if valid.get(name) == each}
        self._histories.keep_only(valid)
        for name in self._pairs.standbys():
            if name not in valid:
                yield from self._pairs.drop(name)
        for name, where in standbys.items():
            yield from self._stand_by(now_s, name, where)
        for name, where in mine.items():
            if where.took_over:
                yield from self._take_over(now_s, name, where)
            elif name in self._units:
                self._pairs.lead(self._units[name], where)
            if name in self._units or self._loading.get(name) == where.incarnation or where.took_over:
                continue
            self._placed_s[name] = now_s
            yield from self._begin(now_s, name)

    def _begin(self, now_s: float, name: str) -> Iterator[Effect]:
        """Begin a unit that was placed here, once its history is here if it has one."""
        where = self._placement.units[name]
        if self._histories.wants(name, where.incarnation):
            return
        if where.checkpoint is None and not self._technique.loads_itself:
            yield from self._start(now_s, name, where.incarnation, self._new_state(name))
        else:
            self._loading[name] = where.incarnation
            yield LoadCheckpoint(name, where.incarnation, where.checkpoint or (where.incarnation, 0))

    def _is_standby(self, where: UnitPlacement) -> bool:
        return where.standby is not None and where.standby.node == self.name

    def _stand_by(self, now_s: float, name: str, where: UnitPlacement) -> Iterator[Effect]:
        """Be the standby of a unit: an active one that needs no copy begins now."""
        standby = where.standby
        assert standby is not None
        yield from self._load(now_s, self._pairs.stand_by(name, where))
        if self._technique.standby is StandbyKind.ACTIVE and standby.fresh and name not in self._units:
            self._placed_s[name] = now_s
            yield from self._start(now_s, name, standby.incarnation, self._new_state(name))

    def _take_over(self, now_s: float, name: str, where: UnitPlacement) -> Iterator[Effect]:
        """Be the primary of a unit whose standby is here."""
        unit, half = self._units.get(name), self._pairs.take_over(name)
        if half is None and (unit is not None or name in self._loading):
            # It has taken over before, and may have another standby now.
            if unit is not None:
                self._pairs.lead(unit, where)
            return
        if half is None or half.incarnation != where.incarnation or not half.usable:
            reason = f"unit {name!r} is lost: its primary died before its standby had a copy"
            yield SendMessage(CONTROLLER, UnitStopped(name, where.incarnation, reason))
            return
        self._placed_s[name] = now_s
        self._scripts[name] = half.log
        if unit is not None:
            unit.follows = False
            self._recovering[name] = (now_s, now_s)
            self._pairs.lead(unit, where)
            if not self._technique.symmetric:
                yield from self._exchange.took_over(unit, self._bounds.credit_bytes)
        elif half.has_copy:
            if name not in self._loading:
                self._loading[name] = where.incarnation
                yield LoadCopy(name, where.incarnation)
        else:
            yield from self._start(now_s, name, where.incarnation, self._new_state(name))

    def _load(self, now_s: float, effects: Iterable[Effect]) -> Iterator[Effect]:
        """Note which copies are being loaded."""
        for effect in effects:
            if isinstance(effect, LoadCopy):
                self._loading[effect.unit], self._placed_s[effect.unit] = effect.incarnation, now_s
            yield effect

    def _pair(self, now_s: float, unit: HAUnit) -> Iterator[Effect]:
        for each in self._pairs.tick(now_s, unit):
            if isinstance(each, Acknowledge):
                yield from self._act(unit, [each])
            else:
                yield each

    def _start(self, now_s: float, name: str, incarnation: int, state: UnitState) -> Iterator[Effect]:
        where = self._placement.units[name]
        leads = where.incarnation == incarnation
        half = self._pairs.standbys().get(name)
        active = self._technique.standby is StandbyKind.ACTIVE
        unit = HAUnit(
            self._network.unit(name),
            self._network,
            self._technique,
            state,
            UnitStart(
                incarnation,
                slot=where.slot if leads or not active else 1 - where.slot,
                attempts=half.attempts if half is not None else 0,
                restart=where.restart,
                phases=self._histories.phases(name),
                chance=random.Random(f"{self._session} {name} {incarnation}"),
            ),
            self._bounds.of_buffers,
        )
        self._histories.begun(unit)
        self._units[name] = unit
        self._guards[name] = self._technique.guard(name, now_s)
        if leads and incarnation > 1:
            self._recovering[name] = (self._placed_s[name], now_s)
        script = self._scripts.pop(name, None)
        if leads:
            if script is not None:
                unit.repeat(script)
            self._pairs.lead(unit, where)
        elif half is not None and self._pairs.records(name):
            unit.follows = True
            unit.repeat(half.log)
        yield from self._exchange.begun(unit)
        if self._technique.standby is not None:
            if unit.loaded:
                yield DropCopy(name)
        elif unit.loaded:
            # A producer that began again does not know what the checkpoint covers.
            yield from self._act(unit, [Acknowledge(RowStage.SAFE, unit.positions)])

    def _drop(self, name: str) -> None:
        del self._units[name], self._exchange.participants[name], self._guards[name]
        self._recovering.pop(name, None)
        self._pairs.forget(name)
        self._histories.forget(name)

    def _act(self, unit: HAUnit, actions: Iterable[Action]) -> Iterator[Effect]:
        for action in actions:
            match action:
                case TakeCheckpoint(number):
                    yield StoreCheckpoint(unit.name, unit.incarnation, number, unit.capture(number))
                case TrimByCauses(level, recorded):
                    found = unit.restart_point(level)
                    if found is None:
                        continue
                    number, point, phases = found
                    if recorded:
                        reached = RestartPointReached(unit.name, unit.incarnation, number, point, phases)
                        yield SendMessage(CONTROLLER, reached)
                    else:
                        yield from self._act(unit, [Acknowledge(RowStage.SAFE, unit.recorded(number))])
                case Acknowledge(level, upto):
                    for stream, position in upto.items():
                        ack = unit.inputs[stream].acknowledge(level, position)
                        yield from self._exchange.acknowledge(unit, ack)
                case AcknowledgeCovered(level):
                    yield from self._act(unit, [Acknowledge(level, unit.covered)])

    def _run(self, now_s: float) -> Iterator[Effect]:
        """Do all that can be done now: ask for rows, process, send."""
        yield from self._exchange.subscribe(now_s)
        self.has_work = False
        for unit in list(self._units.values()):
            lost = [stream for stream, source in unit.inputs.items() if source.lost]
            if lost and not self._technique.tolerates_gaps:
                yield from self._stop(unit, f"unit {unit.name!r} needs rows of {lost[0]!r} that are gone")
                continue
            yield from self._guarded(unit, partial(self._process, unit))
            if unit.name in self._recovering and unit.caught_up and not unit.repeats:
                placed_s, begun_s = self._recovering.pop(unit.name)
                load_us, replay_us = int((begun_s - placed_s) * 1e6), int((now_s - begun_s) * 1e6)
                recovered = UnitRecovered(unit.name, unit.incarnation, load_us, replay_us)
                yield SendMessage(CONTROLLER, recovered)
        yield from self._pairs.send_events()
        yield from self._histories.ask(now_s)
        yield from self._histories.report()
        yield from self._late_rows.report(self._units.values())
        yield from self._exchange.send_due()

    def _process(self, unit: HAUnit) -> None:
        if unit.process_all(self._bounds.events_per_turn):
            self.has_work = True

    def _kept_up(self, now_s: float, unit: HAUnit) -> list[Effect]:
        """Take the checkpoint or the copy that is due; a state that cannot be captured stops the query."""
        effects: list[Effect] = []
        try:
            effects += self._act(unit, self._guards[unit.name].tick(now_s, unit.positions))
            if self._technique.standby is not None:
                effects += self._pair(now_s, unit)
        except PeacefsError as error:
            effects += self._stop(unit, error.message)
        return effects

    def _guarded(self, unit: HAUnit, call: Callable[[], None]) -> list[Effect]:
        """Let a unit do something; if it fails, it stops, and with it the query."""
        try:
            call()
        except PeacefsError as error:
            return self._stop(unit, error.message)
        return []

    def _stop(self, unit: HAUnit, reason: str) -> list[Effect]:
        self._drop(unit.name)
        return [SendMessage(CONTROLLER, UnitStopped(unit.name, unit.incarnation, reason))]
