"""The points at which a unit could begin again, from when its consumers allow one until it is recorded."""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.core.restart_point import RestartPoint
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.phases import Phases, pack
from peacefs.dataflow.model.row_stage import RowStage

from .causes import UnitCauses, added


class RestartPoints:
    """Restart points of one unit, numbered from 1. `UnitUpkeep` calls it."""

    def __init__(self, causes: UnitCauses, inputs: Mapping[str, HAInput], outputs: Mapping[str, HAOutput]) -> None:
        self._causes, self._inputs, self._outputs = causes, inputs, outputs
        # Points that were reported to the controller, by number, and the phases that changed before each.
        self._unrecorded: dict[int, tuple[RestartPoint, Mapping[str, Phases]]] = {}
        self._count = 0

    def reached(self, level: RowStage, event: int) -> tuple[int, RestartPoint, bytes] | None:
        """Return the latest point at which the unit could begin, if consumers allow a new one.

        Also returns its number, and the phases that have changed since the last recorded point, packed.
        """
        self._causes.note(self._inputs, self._outputs, event)
        found = self._causes.reached(self._outputs, level)
        if found is None:
            return None
        self._count += 1
        self._unrecorded[self._count] = found
        phases: Mapping[str, Phases] = {}
        for _, changed in self._unrecorded.values():
            phases = added(phases, changed)
        return self._count, found[0], pack(phases)

    def recorded(self, number: int) -> Mapping[str, Position]:
        """Note that a restarted unit begins at this point, and return the point's positions.

        Rows up to these positions may be dropped.
        """
        point, _ = self._unrecorded[number]
        self._unrecorded = {other: each for other, each in self._unrecorded.items() if other > number}
        return point.begins
