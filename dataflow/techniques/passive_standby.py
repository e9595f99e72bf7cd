"""Passive standby: what changed in a unit's state goes to the memory of a second node every interval (HA 5.1).

That node acknowledges to the producers what a copy covers, so that they drop it. When it takes over it loads the
last copy, and the producers replay the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import StandbyKind

from .standbys import StandbyTechnique


class PassiveStandby(StandbyTechnique):
    name: ClassVar[str] = "passive standby"
    standby = StandbyKind.PASSIVE

    def __init__(self, *, interval_s: float = 0.05, precise: bool = True) -> None:
        """`interval_s`: the time from one copy to the next."""
        super().__init__(interval_s=interval_s, precise=precise)

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.SAFE, destination) for destination in destinations)})
