"""Pairs of units with one half on this node (HA 5.1 and 5.3, Flux 3).

A unit has its primary on one node and its standby on another. The controller decides which is which. A standby
that takes over keeps its incarnation, and later messages of its primary are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.protocol.errors import PeacefsError

from .effects import DropCopy, Effect, LoadCopy, SendMessage
from .messages import (
    Ack,
    CopyHeld,
    CopyPiece,
    Determinants,
    DeterminantsHeld,
    PairMessage,
    StandbyInStep,
    TrimOutput,
    UnitPlacement,
)
from .pair_primary import PrimaryHalf
from .pair_standby import StandbyHalf
from .query_recovery import QueryRecovery
from .units.unit import HAUnit

# Maximum number of kept messages for standbys that the node does not know yet.
dataflow_early_messages_max: Final = 4096


ToStandby = CopyPiece | Determinants | TrimOutput


class Pairs:
    """The halves of pairs on one node: units that have a standby, and standbys of units elsewhere.

    A message for another incarnation of a standby is ignored. A message for a standby that this node does not know
    yet is kept, up to a limit. `NodeCore` passes it placements, messages and the time, and performs the effects
    that it yields.
    """

    def __init__(self, recovery: QueryRecovery) -> None:
        self._recovery = recovery
        self._primaries: dict[str, PrimaryHalf] = {}
        self._standbys: dict[str, StandbyHalf] = {}
        # Active standbys that run here and have told their primary that they receive all rows.
        self._in_step: set[str] = set()
        # Messages to standbys that this node does not know yet.
        self._early: list[tuple[str, ToStandby]] = []
        self._acknowledged_s: dict[str, float] = {}

    # -- placements ------------------------------------------------------------------------------------------

    def stand_by(self, name: str, where: UnitPlacement) -> Iterator[Effect]:
        """Note that a unit's standby is here."""
        standby = where.standby
        assert standby is not None
        known = self._standbys.get(name)
        if known is None or known.incarnation != standby.incarnation:
            if known is not None:
                yield from self.drop(name)
            self._standbys[name] = StandbyHalf(name, where, records=self.records(name))
            early, self._early = self._early, []
            for node, message in early:
                yield from self._to_standby(node, message, None)

    def take_over(self, name: str) -> StandbyHalf | None:
        """Remove a standby that becomes the unit, and return what it holds."""
        self._in_step.discard(name)
        return self._standbys.pop(name, None)

    def lead(self, unit: HAUnit, where: UnitPlacement) -> None:
        """Note which standby, if any, a unit that runs here has."""
        known = self._primaries.get(unit.name)
        standby = where.standby
        if known is not None and (standby is None or known.incarnation != standby.incarnation):
            del self._primaries[unit.name]
            unit.record(None)
            unit.hold.end()
        if standby is not None and unit.name in self._primaries:
            self._primaries[unit.name].announced |= standby.in_step
        elif standby is not None:
            self._primaries[unit.name] = PrimaryHalf(unit, standby, self._recovery.of(unit.name))

    def drop(self, name: str) -> Iterator[Effect]:
        """Note that neither half of a unit is here."""
        self._primaries.pop(name, None)
        self._in_step.discard(name)
        if self._standbys.pop(name, None) is not None:
            yield DropCopy(name)

    def forget(self, name: str) -> None:
        """Note that a unit no longer runs here."""
        self._primaries.pop(name, None)
        self._in_step.discard(name)

    def records(self, name: str) -> bool:
        """Return True if a unit's standby repeats the events that its primary recorded."""
        return self._recovery.of(name).records_events

    def _both_read(self, name: str) -> bool:
        return self._recovery.technique_of(name).replicas.both_read

    def _is_due(self, now_s: float, name: str) -> bool:
        """Return True if an acknowledgement of a unit, or of its standby, is due."""
        due = now_s >= self._acknowledged_s.get(name, 0.0)
        if due:
            self._acknowledged_s[name] = now_s + self._recovery.technique_of(name).interval_s
        return due

    def standbys(self) -> dict[str, StandbyHalf]:
        return dict(self._standbys)

    # -- messages ---------------------------------------------------------------------------------------------

    def received(self, node: str, message: PairMessage, unit: HAUnit | None) -> Iterator[Effect]:
        """Process a message. `unit` is the one that the message is about, if it runs here."""
        match message:
            case CopyPiece() | Determinants() | TrimOutput():
                yield from self._to_standby(node, message, unit)
            case CopyHeld() | DeterminantsHeld() | StandbyInStep():
                half = self._primaries.get(message.unit)
                if half is None or half.incarnation != message.standby:
                    return
                if isinstance(message, CopyHeld):
                    yield from half.held(message)
                elif isinstance(message, DeterminantsHeld):
                    yield from half.determinants_held(message.upto)
                else:
                    half.standby_in_step(message.number)

    def _to_standby(self, node: str, message: ToStandby, unit: HAUnit | None) -> Iterator[Effect]:
        half = self._standbys.get(message.unit)
        if half is None or half.incarnation < message.standby:
            self._early = [*self._early, (node, message)][-dataflow_early_messages_max:]
        elif half.incarnation == message.standby:
            match message:
                case CopyPiece():
                    had = half.has_copy
                    yield from half.piece(node, message)
                    if self._both_read(message.unit) and half.has_copy and not had:
                        yield LoadCopy(message.unit, half.incarnation)
                case Determinants():
                    yield from half.determinants(node, message)
                case TrimOutput() if unit is not None:
                    unit.trimmed.trim(message.stream, message.upto, message.positions)

    def disconnected(self, node: str) -> None:
        self._early = [early for early in self._early if early[0] != node]
        for half in self._primaries.values():
            if half.node == node:
                half.disconnected()
        self._in_step.clear()
        for standby in self._standbys.values():
            if standby.node == node:
                standby.disconnected()

    def copied(self, unit: HAUnit, number: int, data: bytes | PeacefsError) -> Iterator[Effect]:
        unit.captures.copying = False
        half = self._primaries.get(unit.name)
        if half is not None:
            yield from half.copied(number, data)

    # -- time -------------------------------------------------------------------------------------------------

    def tick(self, now_s: float, unit: HAUnit) -> Iterator[Effect]:
        """Do the periodic work for a unit that runs here."""
        half = self._primaries.get(unit.name)
        if half is not None:
            yield from half.tick(now_s)
        standby = self._standbys.get(unit.name)
        if standby is not None:
            standby.log.drop(unit.event)
            connected = all(each.connected for each in unit.inputs.values())
            if connected and standby.node is not None and unit.name not in self._in_step:
                self._in_step.add(unit.name)
                told = StandbyInStep(unit.name, standby.incarnation, standby.number)
                yield SendMessage(standby.node, told)

    def acknowledged(self, now_s: float, unit: HAUnit) -> tuple[RowStage, Mapping[str, Position]] | None:
        """Return the positions that a unit that runs here acknowledges now, and the stage of these rows."""
        if not self._is_due(now_s, unit.name):
            return None
        half = self._primaries.get(unit.name)
        positions = unit.positions if half is None else half.acknowledged()
        if positions is None:
            return None
        return RowStage.RECEIVED if self._both_read(unit.name) else RowStage.SAFE, positions

    def begins_anew(self, message: PairMessage) -> bool:
        """Return True if an active standby that has a copy is sent another one, and must begin with that."""
        half = self._standbys.get(message.unit)
        if half is None or not self._both_read(message.unit) or not isinstance(message, CopyPiece):
            return False
        anew = half.incarnation == message.standby and message.piece == 0 and half.has_copy
        if anew:
            half.begin_anew()
            self._in_step.discard(message.unit)
        return anew

    def covered(self, now_s: float) -> Iterator[Ack]:
        """Yield the acknowledgements that passive standbys send for their primaries."""
        for name, half in self._standbys.items():
            if not self._both_read(name) and self._is_due(now_s, name):
                for stream, position in half.covered.items():
                    yield Ack(stream, name, half.primary, RowStage.SAFE, position)

    def send_events(self) -> Iterator[Effect]:
        for half in self._primaries.values():
            yield from half.send_events()
