"""What has changed from one placement of a query's units to the next, for observers and the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from peacefs.dataflow.core.messages import Placement, UnitPlacement
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.recovery.technique import Replicas

from .run_events import PairComplete, RunEvent, StandbyMissing, UnitsPlaced

log = logging.getLogger("peacefs.dataflow")


class PlacementEvents:
    """Compares each placement with the one before. `EdgeRun` has one."""

    def __init__(self, recovery: QueryRecovery) -> None:
        self._paired = recovery.plan().replicas
        self._before: Mapping[str, UnitPlacement] = {}

    def of(self, placement: Placement) -> Iterator[RunEvent]:
        """Yield what has changed. Log units that have lost their standby."""
        before, self._before = self._before, placement.units
        changed = {
            name: (where.node, where.incarnation)
            for name, where in placement.units.items()
            if where.node is not None and where != before.get(name)
        }
        yield UnitsPlaced(changed)
        for name, where in placement.units.items():
            if name not in self._paired:
                continue
            known = before.get(name)
            alone = where.took_over or (known is not None and known.standby is not None)
            standby = where.standby
            if standby is not None and standby.in_step and (known is None or known.standby != standby):
                yield PairComplete(name, standby.node)
            if where.node is not None and standby is None and where != known and alone:
                equals = self._paired[name] is Replicas.EQUALS
                why = "until it has caught up" if equals else "no other node is free"
                log.warning("unit %r continues without a standby: %s", name, why)
                yield StandbyMissing(name)
