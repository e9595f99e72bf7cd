"""The units of one node, from placement to removal: how each one begins and takes over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import Storage
from peacefs.dataflow.unit_state.interface import UnitState
from peacefs.protocol.errors import PeacefsError

from .bounds import Bounds
from .determinants import EventLog
from .effects import DropCopy, Effect, LoadCheckpoint, LoadCopy, SendMessage
from .exchange import Exchange
from .histories import Histories
from .messages import CONTROLLER, PairMessage, Placement, UnitPlacement, UnitRecovered, UnitStopped
from .pairs import Pairs
from .query_recovery import QueryRecovery
from .unit_upkeep import UnitUpkeep
from .units.start import UnitStart
from .units.unit import HAUnit


class NodeUnits:
    """Tracks which units run on a node, stand by on it, or are about to begin there.

    A unit is here only under the incarnation that the latest placement gives this node. `NodeCore` passes it
    placements, loaded states and the outcomes of units, and performs the effects that it yields.
    """

    def __init__(
        self,
        name: str,
        session: str,
        recovery: QueryRecovery,
        new_state: Callable[[str], UnitState],
        bounds: Bounds,
    ) -> None:
        self._name, self._session = name, session
        self._recovery, self._new_state, self._bounds = recovery, new_state, bounds
        self.exchange = Exchange(recovery, retry_s=bounds.subscribe_retry_s)
        self.pairs = Pairs(recovery)
        self.histories = Histories(recovery, retry_s=bounds.subscribe_retry_s)
        self.placement = Placement(0, {})
        self.running: dict[str, HAUnit] = {}
        self.upkeep: dict[str, UnitUpkeep] = {}
        # Units whose checkpoint is being loaded, with their incarnation.
        self._loading: dict[str, int] = {}
        self._placed_s: dict[str, float] = {}
        # Events that a unit must repeat after it takes over.
        self._scripts: dict[str, EventLog] = {}
        # Restarted units that have not caught up: when loading began, and when processing began.
        self._recovering: dict[str, tuple[float, float]] = {}

    def find(self, unit: str, incarnation: int) -> HAUnit | None:
        """Return a unit if it runs here under this incarnation."""
        found = self.running.get(unit)
        return found if found is not None and found.incarnation == incarnation else None

    # -- placements ------------------------------------------------------------------------------------------

    def place(self, now_s: float, placement: Placement) -> Iterator[Effect]:
        if placement.version <= self.placement.version:
            return
        self.placement = placement
        self.exchange.placed(placement)
        mine = {name: where for name, where in placement.units.items() if where.node == self._name}
        standbys = {name: where for name, where in placement.units.items() if self._is_standby(where)}
        valid = {name: where.incarnation for name, where in mine.items()}
        valid |= {name: where.standby.incarnation for name, where in standbys.items() if where.standby}
        for name, unit in list(self.running.items()):
            if valid.get(name) != unit.incarnation:
                self.drop(name)
        self._loading = {name: each for name, each in self._loading.items() if valid.get(name) == each}
        self.histories.keep_only(valid)
        for name in self.pairs.standbys():
            if name not in valid:
                yield from self.pairs.drop(name)
        for name, where in standbys.items():
            yield from self._stand_by(now_s, name, where)
        for name, where in mine.items():
            if where.took_over:
                yield from self._take_over(now_s, name, where)
            elif name in self.running:
                self.pairs.lead(self.running[name], where)
            if name in self.running or self._loading.get(name) == where.incarnation or where.took_over:
                continue
            self._placed_s[name] = now_s
            yield from self.begin(now_s, name)

    def begin(self, now_s: float, name: str) -> Iterator[Effect]:
        """Begin a unit that was placed here. If it has a history, wait for that first."""
        where = self.placement.units[name]
        if self.histories.wants(name, where.incarnation):
            return
        if where.checkpoint is None and self._recovery.technique_of(name).stores is not Storage.WINDOW_LOG:
            yield from self._start(now_s, name, where.incarnation, self._new_state(name))
        else:
            self._loading[name] = where.incarnation
            yield LoadCheckpoint(name, where.incarnation, where.checkpoint or (where.incarnation, 0))

    def _is_standby(self, where: UnitPlacement) -> bool:
        return where.standby is not None and where.standby.node == self._name

    def _stand_by(self, now_s: float, name: str, where: UnitPlacement) -> Iterator[Effect]:
        """Become the standby of a unit. A standby that also processes, and needs no copy, begins now."""
        standby = where.standby
        assert standby is not None
        yield from self.noted(now_s, self.pairs.stand_by(name, where))
        both_read = self._recovery.technique_of(name).replicas.both_read
        if both_read and standby.fresh and name not in self.running:
            self._placed_s[name] = now_s
            yield from self._start(now_s, name, standby.incarnation, self._new_state(name))

    def _take_over(self, now_s: float, name: str, where: UnitPlacement) -> Iterator[Effect]:
        """Make the standby of a unit on this node the primary."""
        unit, half = self.running.get(name), self.pairs.take_over(name)
        if half is None and (unit is not None or name in self._loading):
            # The unit took over before, and may have a new standby now.
            if unit is not None:
                self.pairs.lead(unit, where)
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
            self.pairs.lead(unit, where)
            yield from self.exchange.took_over(unit, self._bounds.credit_bytes)
        elif half.has_copy:
            if name not in self._loading:
                self._loading[name] = where.incarnation
                yield LoadCopy(name, where.incarnation)
        else:
            yield from self._start(now_s, name, where.incarnation, self._new_state(name))

    # -- loading ---------------------------------------------------------------------------------------------

    def wants(self, unit: str, incarnation: int) -> bool:
        """Return True if a checkpoint of a unit is still to be loaded."""
        return self._loading.get(unit) == incarnation

    def loaded(self, now_s: float, unit: str, incarnation: int, state: UnitState) -> Iterator[Effect]:
        if self.wants(unit, incarnation):
            del self._loading[unit]
            yield from self._start(now_s, unit, incarnation, state)

    def not_loaded(self, unit: str, incarnation: int, error: PeacefsError) -> Iterator[Effect]:
        if self.wants(unit, incarnation):
            del self._loading[unit]
            reason = f"unit {unit!r} cannot begin: {error.message}"
            yield SendMessage(CONTROLLER, UnitStopped(unit, incarnation, reason))

    def noted(self, now_s: float, effects: Iterable[Effect]) -> Iterator[Effect]:
        """Note which copies are being loaded."""
        for effect in effects:
            if isinstance(effect, LoadCopy):
                self._loading[effect.unit], self._placed_s[effect.unit] = effect.incarnation, now_s
            yield effect

    def from_pair(self, now_s: float, node: str, message: PairMessage) -> Iterator[Effect]:
        """Process a message of the other node of a pair."""
        if self.pairs.begins_anew(message):
            self._loading.pop(message.unit, None)
            if message.unit in self.running:
                self.drop(message.unit)
        yield from self.noted(now_s, self.pairs.received(node, message, self.running.get(message.unit)))

    # -- a unit ----------------------------------------------------------------------------------------------

    def _start(self, now_s: float, name: str, incarnation: int, state: UnitState) -> Iterator[Effect]:
        where = self.placement.units[name]
        technique = self._recovery.technique_of(name)
        leads = where.incarnation == incarnation
        half = self.pairs.standbys().get(name)
        unit = HAUnit(
            self._recovery.network.unit(name),
            self._recovery,
            state,
            UnitStart(
                incarnation,
                slot=where.slot if leads or not technique.replicas.both_read else 1 - where.slot,
                attempts=half.attempts if half is not None else 0,
                restart=where.restart,
                phases=self.histories.phases(name),
                chance=random.Random(f"{self._session} {name} {incarnation}"),
            ),
            self._bounds.of_buffers,
        )
        self.histories.begun(unit)
        self.running[name] = unit
        self.upkeep[name] = UnitUpkeep(unit, technique, self.exchange, now_s)
        if leads and incarnation > 1:
            self._recovering[name] = (self._placed_s[name], now_s)
        script = self._scripts.pop(name, None)
        if leads:
            if script is not None:
                unit.repeat(script)
            self.pairs.lead(unit, where)
        elif half is not None and self.pairs.records(name):
            unit.follows = True
            unit.repeat(half.log)
        yield from self.exchange.begun(unit)
        if unit.loaded and technique.replicas.paired:
            yield DropCopy(name)
        elif unit.loaded:
            # A restarted producer does not know what the checkpoint covers.
            yield from self.upkeep[name].acknowledge(RowStage.SAFE, unit.positions)

    def recovered(self, now_s: float, unit: HAUnit) -> Iterator[Effect]:
        """Tell the controller once that a restarted unit has caught up."""
        if unit.name in self._recovering and unit.caught_up and not unit.repeats:
            placed_s, begun_s = self._recovering.pop(unit.name)
            load_us, replay_us = int((begun_s - placed_s) * 1e6), int((now_s - begun_s) * 1e6)
            yield SendMessage(CONTROLLER, UnitRecovered(unit.name, unit.incarnation, load_us, replay_us))

    def stop(self, unit: HAUnit, reason: str) -> Effect:
        """Drop a unit that cannot continue. The controller then stops the query, unless another node can go on."""
        self.drop(unit.name)
        return SendMessage(CONTROLLER, UnitStopped(unit.name, unit.incarnation, reason))

    def drop(self, name: str) -> None:
        del self.running[name], self.exchange.participants[name], self.upkeep[name]
        self._recovering.pop(name, None)
        self.pairs.forget(name)
        self.histories.forget(name)
