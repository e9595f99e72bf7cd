"""Active standby: a second node processes all that the first does, and keeps its output to itself (HA 5.3).

Producers keep a row until both have processed it. The secondary's output goes when consumers have it from the
primary: by number where both produce the same, else by high watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import StandbyKind
from peacefs.dataflow.limits import dataflow_tick_s

from .standbys import StandbyTechnique


class ActiveStandby(StandbyTechnique):
    name: ClassVar[str] = "active standby"
    standby = StandbyKind.ACTIVE

    def __init__(self, *, interval_s: float = dataflow_tick_s, precise: bool = True) -> None:
        """`interval_s`: so often rows are acknowledged, and the secondary's output is trimmed."""
        super().__init__(interval_s=interval_s, precise=precise)

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.RECEIVED, destination) for destination in destinations)})
