"""The primary's half of a pair: what its standby is sent, and what waits for the standby's answer.

- *Copies* of the unit's state in pieces: first all pages, then, for a passive standby, the changed pages. A copy
  is captured between two batches and sent while the unit continues, so that the primary never stops (HA 5.1).
- *Events* of an arbitrary unit. Output that depends on them is held back until the standby has
  them.
- The rows of the output that consumers have, so that an active standby drops them (HA 5.3).
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
from .units.unit import HAUnit

# Size of a piece of a copy, and the maximum number of pieces in transit.
dataflow_copy_piece_bytes: Final = 1 * MIB
dataflow_copy_pieces_max: Final = 4
# Number of recorded events after which a passive standby gets a new copy, even without new rows.
dataflow_determinants_max: Final = 256


_PIECE = dataflow_copy_piece_bytes


@dataclass
class _Copy:
    """A copy in transit, and the state of the unit when it was captured."""

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
    """Sends a standby what it needs from the primary: copies of the state, events, and trims.

    At most one copy is under way. Once events are sent, output that depends on an event is sent only when the
    standby has that event. After a broken connection, the next copy (if one is needed) is a full copy. `Pairs`
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
        #: True once an active standby receives the same rows as the unit.
        self.in_step = standby.fresh and self._active
        self._copy: _Copy | None = None
        # The last copy that the standby has. 0 before the first copy, and if it is unknown.
        self._base = 0
        self._due_s = 0.0
        # The last captured copy: the positions of the inputs, and the event.
        self._captured: tuple[object, int] = (_progress(unit) if standby.fresh else None, unit.event)
        # While an active standby is not in step: positions beyond which nothing is acknowledged.
        self._frozen: Mapping[str, Position] | None = None
        self._records = records
        self._log: EventLog | None = None
        # True once the standby can use events. Then the last event that was sent, and the last that the standby
        # has.
        self._sends_events = False
        self._sent = self._acked = unit.event
        self._trimmed: dict[str, int] = {}
        if records and standby.fresh:
            self._log = EventLog(unit.event)
            unit.record(self._log)
            self._begin_events()

    # -- time ---------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterator[Effect]:
        """Begin a copy if one is due, and tell the standby which rows consumers have."""
        if self._wants_copy(now_s):
            self._due_s = now_s + self._interval_s
            yield self._capture()
        if self._symmetric:
            # Consumers acknowledge to both halves, so there is nothing to trim. The controller announces the new
            # half.
            if self.in_step and not self.announced:
                in_step = StandbyInStep(self.unit.name, self.incarnation, self._base)
                yield SendMessage(CONTROLLER, in_step)
        elif self._active:
            yield from self._trims()

    def send_events(self) -> Iterator[Effect]:
        """Send new events. Output that depends on them is sent once the standby has them."""
        if self._log is None or not self._sends_events:
            return
        while self._sent < self._log.last:
            events = self._log.since(self._sent)[:dataflow_determinants_per_message_max]
            yield self._to_standby(Determinants(self.unit.name, self.incarnation, self._sent + 1, events))
            self._sent += len(events)

    def acknowledged(self) -> Mapping[str, Position] | None:
        """Return the positions up to which producers may drop rows for the unit. None: the standby decides."""
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
                # Send a message even without events: it tells the standby that it may take over.
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
        """Note that the standby runs since copy `number`. Ignored if that is not its last copy."""
        self.in_step = self.in_step or (number == self._base and self._base > 0)

    def disconnected(self) -> None:
        """Note that messages to the standby may be lost."""
        self._restart()
        self._sent = self._acked
        self._trimmed.clear()

    # -- inside ---------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        """Make the next copy a full one."""
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
    """Return the position of each input, and whether the input has ended."""
    return {stream: (each.processed, each.ended) for stream, each in unit.inputs.items()}
