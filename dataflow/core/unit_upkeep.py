"""The periodic work of a node for one of its units: captures, acknowledgements and trims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import Storage, Technique

from .capture_schedule import CaptureSchedule
from .effects import Effect, SendMessage, StoreCheckpoint
from .exchange import Exchange
from .messages import CONTROLLER, RestartPointReached
from .units.unit import HAUnit


class UnitUpkeep:
    """Does for one start of a unit what its technique requires of the node."""

    def __init__(self, unit: HAUnit, technique: Technique, exchange: Exchange, now_s: float) -> None:
        self._unit, self._technique, self._exchange = unit, technique, exchange
        self._schedule = CaptureSchedule(technique, now_s) if technique.takes_checkpoints else None
        # When causes are next evaluated, and the positions that were last acknowledged.
        self._trim_s = now_s + technique.interval_s
        self._received: Mapping[str, Position] = {}

    def tick(self, now_s: float) -> Iterator[Effect]:
        unit = self._unit
        if self._schedule is not None:
            number = self._schedule.due(now_s, unit.positions)
            if number is not None:
                yield StoreCheckpoint(unit.name, unit.incarnation, number, unit.capture(number))
        if self._technique.causes is not None and now_s >= self._trim_s:
            self._trim_s = now_s + self._technique.interval_s
            if unit.positions != self._received:
                self._received = unit.positions
                yield from self.acknowledge(RowStage.RECEIVED, self._received)
            yield from self._trim()

    def hurry(self) -> None:
        """Capture the unit early, because producers run out of room for its rows or the query is to stop."""
        if self._schedule is not None:
            self._schedule.hurry()
        self._unit.captures.hurry()

    def recorded(self, number: int) -> Iterator[Effect]:
        """Note that a checkpoint is recorded, so that a restarted unit begins with it."""
        covered = None if self._schedule is None else self._schedule.recorded(number)
        if covered is not None:
            logs = self._technique.stores is Storage.WINDOW_LOG
            yield from self.acknowledge(RowStage.SAFE, self._unit.covered if logs else covered)

    def failed(self, number: int) -> None:
        if self._schedule is not None:
            self._schedule.failed(number)

    def point_recorded(self, number: int) -> Iterator[Effect]:
        """Note that a restarted unit begins at this point, so that rows before it may be dropped."""
        assert self._unit.points is not None
        yield from self.acknowledge(RowStage.SAFE, self._unit.points.recorded(number))

    def acknowledge(self, level: RowStage, upto: Mapping[str, Position]) -> Iterator[Effect]:
        """Tell producers how far their rows have arrived."""
        for stream, position in upto.items():
            ack = self._unit.inputs[stream].acknowledge(level, position)
            yield from self._exchange.acknowledge(self._unit, ack)

    def _trim(self) -> Iterator[Effect]:
        """Tell producers which rows no longer matter, because consumers have everything that these rows caused.

        If restart points are recorded, the controller gets the new point first.
        """
        unit, causes = self._unit, self._technique.causes
        assert causes is not None
        assert unit.points is not None
        found = None if unit.silent else unit.points.reached(causes.level, unit.event)
        if found is None:
            return
        number, point, phases = found
        if causes.recorded:
            reached = RestartPointReached(unit.name, unit.incarnation, number, point, phases)
            yield SendMessage(CONTROLLER, reached)
        else:
            yield from self.point_recorded(number)
