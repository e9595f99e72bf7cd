"""Measures recovery times: from the detection of a death until the lost state is restored (HA, section 4).

A unit has recovered when its new node has processed all input that the old node had processed, and the resulting
rows have left the new node. A standby that was ahead has more rows to send; those are not part of the recovery.
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
    #: The last row of each output that must leave: the last row of the lost unit or, if the new unit numbers rows
    #: anew, its own last row when it has processed as much.
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
        """Record the progress of the units that ran on a dead node. Its standbys do not count."""
        for unit, positions in core.units.items():
            where = placement.units[unit]
            if where.node == node:
                self._lost[unit] = _Lost(where.incarnation, positions, core.produced(unit))

    def detected(self, now_s: float) -> None:
        self._detected_s = now_s

    @property
    def waits(self) -> bool:
        """True if some lost units have not recovered yet."""
        return self._detected_s is not None and bool(self._lost)

    def look(self, now_s: float, node: str, core: NodeCore, placement: Placement) -> None:
        """Record which lost units have recovered. Call this after a node's effects were sent."""
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
