"""Recovery times: from when a death is noticed until the state that was lost is there again (HA, section 4).

A unit has recovered when the node that runs it now has processed what was processed before, and all that it has
put out by then has left that node.
"""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.core.messages import Placement
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.model.batches import Position

from .costs import VirtualLinks


class RecoveryClock:
    def __init__(self, links: VirtualLinks) -> None:
        self._links = links
        #: Seconds from detection to recovery, by unit.
        self.recovery_s: dict[str, float] = {}
        # By unit: the incarnation that was lost, and how far it was.
        self._lost: dict[str, tuple[int, Mapping[str, Position]]] = {}
        self._detected_s: float | None = None

    def died(self, node: str, core: NodeCore, placement: Placement) -> None:
        """Note how far the units were that ran on a node; its standbys are no loss."""
        for unit, positions in core.units.items():
            where = placement.units[unit]
            if where.node == node:
                self._lost[unit] = where.incarnation, positions

    def detected(self, now_s: float) -> None:
        self._detected_s = now_s

    @property
    def waits(self) -> bool:
        """True while units that were lost have not recovered."""
        return self._detected_s is not None and bool(self._lost)

    def look(self, now_s: float, node: str, core: NodeCore, placement: Placement) -> None:
        """Note which of the lost units have recovered, after what a node has just done has left it."""
        assert self._detected_s is not None
        for unit, (incarnation, positions) in list(self._lost.items()):
            where = placement.units[unit]
            there = core.units.get(unit)
            if where.incarnation == incarnation or where.node != node or there is None:
                continue
            behind = any(there[stream].number < upto.number for stream, upto in positions.items())
            if not behind and core.all_sent(unit):
                del self._lost[unit]
                self.recovery_s[unit] = max(now_s, self._links.idle_s(node)) - self._detected_s
