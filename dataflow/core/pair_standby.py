"""The standby's half of a pair: the copies and events that it holds, and whether it can take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from peacefs.dataflow.model.batches import Position

from .determinants import EventLog
from .effects import Effect, KeepCopy, SendMessage
from .messages import CopyHeld, CopyPiece, Determinants, DeterminantsHeld, UnitPlacement

# Maximum number of requests for rows of a standby that began with one copy.
dataflow_attempts_per_copy_max: Final = 1_000_000


class StandbyHalf:
    def __init__(self, unit: str, where: UnitPlacement, *, records: bool) -> None:
        """Create the half. `records` is True if the unit's events are recorded."""
        assert where.standby is not None
        self._unit = unit
        self.incarnation = where.standby.incarnation
        #: The node and the incarnation of the unit's primary.
        self.node, self.primary = where.node, where.incarnation
        #: Events that the copy does not cover and this node has not repeated yet.
        self.log = EventLog()
        self._pieces: list[bytes] = []
        # The number of the copy that is here, and of the copy that is arriving.
        self.number = self._coming = 0
        self._positions: Mapping[str, Position] = {}
        # False while the copy is useless because the events that follow it are missing.
        self._has_events = where.standby.fresh or not records
        self._records = records
        self._fresh = where.standby.fresh

    def begin_anew(self) -> None:
        """Forget the copy: the primary sends a full one."""
        self.number, self._has_events, self.log = 0, False, EventLog()

    @property
    def has_copy(self) -> bool:
        return self.number > 0

    @property
    def usable(self) -> bool:
        """True if the standby can take over."""
        return self._has_events and (self._fresh or self.has_copy)

    @property
    def attempts(self) -> int:
        """The maximum number of requests for rows of units that ran here before one begins with this copy."""
        return self.number * dataflow_attempts_per_copy_max

    @property
    def covered(self) -> Mapping[str, Position]:
        """The positions up to which producers may drop rows for the unit."""
        return self._positions if self.usable else {}

    def piece(self, node: str, message: CopyPiece) -> Iterator[Effect]:
        if message.piece == 0:
            self._pieces, self._coming = [], message.number
        if message.number != self._coming or message.piece != len(self._pieces):
            return
        usable = message.base in (0, self.number)
        if usable:
            self._pieces.append(message.data)
            if len(self._pieces) == message.pieces:
                self._has_events = self._has_events or not self._records
                data, self._pieces = b"".join(self._pieces), []
                yield KeepCopy(self._unit, data)
                self.number, self._positions = message.number, message.positions
                self.log.drop(message.event)
        yield SendMessage(node, CopyHeld(self._unit, self.incarnation, message.number, message.piece, usable))

    def determinants(self, node: str, message: Determinants) -> Iterator[Effect]:
        if self.log.add(message.first, message.events):
            self._has_events = True
            yield SendMessage(node, DeterminantsHeld(self._unit, self.incarnation, self.log.last))

    def disconnected(self) -> None:
        self._pieces, self._coming = [], 0
