"""Amnesia: a unit that is lost begins empty, and goes on with the rows that come then (HA, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import Guard, Technique
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery


class Amnesia(Technique):
    name: ClassVar[str] = "amnesia"
    drops_for_absent: ClassVar[bool] = True
    tolerates_gaps: ClassVar[bool] = True

    def promises(self, network: OperatorClass) -> Recovery:
        return Recovery.GAP

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.SENT, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return incarnation

    def guard(self, unit: str, now_s: float) -> Guard:
        return Guard()
