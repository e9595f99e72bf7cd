"""The primary's half of a pair: what its standby is sent, and what waits for the standby's answer.

- *Copies* of the unit's state in pieces: all pages first, then, for a passive standby, those that changed. A copy
  is captured between two batches and sent while the unit goes on, so that the primary never stops (HA 5.1).
- *Events* of a unit that is not deterministic. Output that depends on them is held back until the standby has
  them.
- How far consumers have the output, so that an active standby drops it (HA 5.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.dataflow.limits import dataflow_determinants_per_message_max
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.recovery.technique import Replicas
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import MIB

from .determinants import EventLog
from .effects import CopyState, Effect, SendMessage
from .messages import (
    CONTROLLER,
    CopyHeld,
    CopyPiece,
    Determinants,
    StandbyInStep,
    StandbyPlacement,
    StandbyReady,
    TrimOutput,
)
from .query_recovery import UnitRecovery
from .unit import HAUnit

# Copies are sent in pieces, so many of which may be on their way.
dataflow_copy_piece_bytes: Final = 1 * MIB
dataflow_copy_pieces_max: Final = 4
# A passive standby's copy is renewed, without any new row, when so many events were recorded.
dataflow_determinants_max: Final = 256


_PIECE = dataflow_copy_piece_bytes


@dataclass
class _Copy:
    """A copy on its way, as the unit was when it was captured."""

    number: int
    base: int
    event: int
    positions: Mapping[str, Position]
    data: bytes = b""
    sent: int = 0

    @property
    def pieces(self) -> int:
        return -(-len(self.data) // _PIECE)


class PrimaryHalf:
    """What the primary of one unit owes to its standby: copies of the state, events, and what to trim.

    At most one copy is under way. Once events are sent, output that depends on an event leaves only when the
    standby has that event. After a broken connection the next copy, if one is needed, is a whole one. `Pairs`
    makes one for each unit that runs here and has a standby, and passes it answers and the time.
    """

    def __init__(self, unit: HAUnit, standby: StandbyPlacement, recovery: UnitRecovery) -> None:
        technique, records = recovery.technique, recovery.records_events
        self.node, self.incarnation = standby.node, standby.incarnation
        self.unit = unit
        self._active = technique.replicas.both_read
        self._symmetric = technique.replicas is Replicas.EQUALS
        #: True once the controller knows that the standby is in step.
        self.announced = standby.fresh or standby.in_step
        self._interval_s = technique.interval_s
        self._fresh = standby.fresh
        self._told_ready = False
        #: True once an active standby gets what the unit gets.
        self.in_step = standby.fresh and self._active
        self._copy: _Copy | None = None
        # The last copy that the standby has; 0 before the first, and when it is not known what it has.
        self._base = 0
        self._due_s = 0.0
        # The last copy that was captured: what the inputs had come to, and the event.
        self._captured: tuple[object, int] = (_progress(unit) if standby.fresh else None, unit.event)
        # Positions beyond which nothing is acknowledged while an active standby is not in step.
        self._frozen: Mapping[str, Position] | None = None
        self._records = records
        self._log: EventLog | None = None
        # Events are sent once the standby could use them; which were, and which it has.
        self._sends_events = False
        self._sent = self._acked = unit.event
        self._trimmed: dict[str, int] = {}
        if records and standby.fresh:
            self._log = EventLog(unit.event)
            unit.record(self._log)
            self._begin_events()

    # -- time ---------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterator[Effect]:
        """Begin a copy if it is time for one, and say what consumers have."""
        if self._wants_copy(now_s):
            self._due_s = now_s + self._interval_s
            yield self._capture()
        if self._symmetric:
            # Consumers tell both what they have, and the controller tells all that there are two again.
            if self.in_step and not self.announced:
                in_step = StandbyInStep(self.unit.name, self.incarnation, self._base)
                yield SendMessage(CONTROLLER, in_step)
        elif self._active:
            yield from self._trims()

    def send_events(self) -> Iterator[Effect]:
        """Send what has happened since; output that depends on it leaves when the standby has it."""
        if self._log is None or not self._sends_events:
            return
        while self._sent < self._log.last:
            events = self._log.since(self._sent)[:dataflow_determinants_per_message_max]
            yield self._to_standby(Determinants(self.unit.name, self.incarnation, self._sent + 1, events))
            self._sent += len(events)

    def acknowledged(self) -> Mapping[str, Position] | None:
        """Return the positions up to which producers need keep nothing for the unit; None: the standby says."""
        if self._active:
            return self.unit.positions if self.in_step or self._frozen is None else self._frozen
        return None if self._fresh or self._frozen is not None else self.unit.positions

    # -- answers --------------------------------------------------------------------------------------------

    def copied(self, number: int, data: bytes | PeacefsError) -> Iterator[Effect]:
        copy = self._copy
        if copy is None or copy.number != number:
            return
        if isinstance(data, PeacefsError):
            self._restart()
            return
        copy.data = data
        for _ in range(dataflow_copy_pieces_max):
            yield from self._next_piece(copy)

    def held(self, message: CopyHeld) -> Iterator[Effect]:
        copy = self._copy
        if copy is None or copy.number != message.number:
            return
        if not message.usable:
            self._restart()
        elif message.piece + 1 < copy.pieces:
            yield from self._next_piece(copy)
        else:
            self._base, self._copy = copy.number, None
            if self._records and not self._sends_events:
                self._begin_events()
                # Even without events: it tells the standby that it may take over.
                if self._log is not None and self._sent == self._log.last:
                    yield self._to_standby(Determinants(self.unit.name, self.incarnation, self._sent + 1, ()))
                yield from self.send_events()
            if not self._records:
                yield from self._ready()

    def determinants_held(self, upto: int) -> Iterator[Effect]:
        assert self._log is not None
        self._acked = max(self._acked, upto)
        self._log.drop(self._acked)
        self.unit.hold.release(self._acked)
        yield from self._ready()

    def _ready(self) -> Iterator[Effect]:
        """Tell the controller once that the standby can take over."""
        if not self._fresh and not self._told_ready:
            self._told_ready = True
            yield SendMessage(CONTROLLER, StandbyReady(self.unit.name, self.incarnation))

    def standby_in_step(self, number: int) -> None:
        """Learn that the standby runs, with copy `number`; an earlier one is of no use any more."""
        self.in_step = self.in_step or (number == self._base and self._base > 0)

    def disconnected(self) -> None:
        """Learn that what was on its way to the standby may be lost."""
        self._restart()
        self._sent = self._acked
        self._trimmed.clear()

    # -- inside ---------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        """Begin with a whole copy when the next one is due."""
        self._copy, self._base = None, 0
        self._captured = (None, self.unit.event)

    def _wants_copy(self, now_s: float) -> bool:
        if self._copy is not None or now_s < self._due_s or self.unit.captures.copying:
            return False
        if self._active:
            return not self.in_step and self._base == 0
        progress, event = self._captured
        return progress != _progress(self.unit) or self.unit.event - event >= dataflow_determinants_max

    def _capture(self) -> Effect:
        unit = self.unit
        self._captured = (_progress(unit), unit.event)
        number, capture = unit.captures.copy(unit.event, full=self._base == 0, with_rows=self._active)
        self._copy = _Copy(number, self._base, unit.event, unit.positions)
        if not self._fresh and not self.in_step:
            self._frozen = unit.positions
        if self._records and not self._sends_events:
            self._log = EventLog(unit.event)
            unit.record(self._log)
            self._sent = self._acked = unit.event
        return CopyState(unit.name, unit.incarnation, number, capture)

    def _begin_events(self) -> None:
        self._sends_events = True
        self.unit.hold.begin()

    def _next_piece(self, copy: _Copy) -> Iterator[Effect]:
        if copy.sent < copy.pieces:
            part = copy.data[copy.sent * _PIECE : (copy.sent + 1) * _PIECE]
            yield self._to_standby(
                CopyPiece(
                    self.unit.name,
                    self.incarnation,
                    copy.number,
                    copy.base,
                    copy.sent,
                    copy.pieces,
                    copy.event,
                    copy.positions,
                    part,
                )
            )
            copy.sent += 1

    def _trims(self) -> Iterator[Effect]:
        for stream, output in self.unit.outputs.items():
            upto = output.buffer.first_held - 1
            if upto > self._trimmed.get(stream, 0):
                self._trimmed[stream] = upto
                positions = self.unit.trimmed.made_from(stream, upto)
                yield self._to_standby(TrimOutput(self.unit.name, self.incarnation, stream, upto, positions))

    def _to_standby(self, message: CopyPiece | Determinants | TrimOutput) -> SendMessage:
        return SendMessage(self.node, message)


def _progress(unit: HAUnit) -> dict[str, tuple[Position, bool]]:
    """Return the position of each input, and whether it has ended."""
    return {stream: (each.processed, each.ended) for stream, each in unit.inputs.items()}
