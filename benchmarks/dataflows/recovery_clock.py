"""Recovery times: from when a death is noticed until the state that was lost is there again (HA, section 4).

A unit has recovered when the node that runs it now has processed what was processed before, and the rows that it
has made of that have left the node. A standby that was ahead has more to send; that is no part of the recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peacefs.dataflow.core.messages import Placement
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.model.batches import Position

from .costs import VirtualLinks


@dataclass
class _Lost:
    incarnation: int
    positions: Mapping[str, Position]
    #: The last row of each output that has to leave: of the unit that was lost, or, where the next one numbers
    #: anew, of that when it had processed as much.
    outputs: Mapping[str, int]
    processed: bool = False


class RecoveryClock:
    def __init__(self, links: VirtualLinks) -> None:
        self._links = links
        #: Seconds from detection to recovery, by unit.
        self.recovery_s: dict[str, float] = {}
        self._lost: dict[str, _Lost] = {}
        self._detected_s: float | None = None

    def died(self, node: str, core: NodeCore, placement: Placement) -> None:
        """Note how far the units were that ran on a node; its standbys are no loss."""
        for unit, positions in core.units.items():
            where = placement.units[unit]
            if where.node == node:
                self._lost[unit] = _Lost(where.incarnation, positions, core.produced(unit))

    def detected(self, now_s: float) -> None:
        self._detected_s = now_s

    @property
    def waits(self) -> bool:
        """True while units that were lost have not recovered."""
        return self._detected_s is not None and bool(self._lost)

    def look(self, now_s: float, node: str, core: NodeCore, placement: Placement) -> None:
        """Note which of the lost units have recovered, after what a node has just done was sent."""
        assert self._detected_s is not None
        for unit, lost in list(self._lost.items()):
            where = placement.units[unit]
            there = core.units.get(unit)
            if where.incarnation == lost.incarnation or where.node != node or there is None:
                continue
            if any(there[stream].number < upto.number for stream, upto in lost.positions.items()):
                continue
            if not lost.processed:
                made = core.produced(unit)
                lost.outputs = {stream: min(last, made[stream]) for stream, last in lost.outputs.items()}
                lost.processed = True
            sent = core.sent(unit)
            if any(sent[stream] < last for stream, last in lost.outputs.items()):
                continue
            del self._lost[unit]
            left_s = [self._links.left_s(node, stream, last) for stream, last in lost.outputs.items()]
            self.recovery_s[unit] = max(now_s, *left_s) - self._detected_s
