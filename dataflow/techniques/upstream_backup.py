"""Upstream backup: producers keep the rows that their consumers' states depend on (HA, section 5.2).

Nothing is stored. Every interval a unit tells its producers which rows it has (level 0), and which rows matter no
more to itself and, through it, to those that follow (level 1). After a failure a unit begins empty, asks for the
oldest rows that its producers have, and makes its state from them again. Consumers get rows again; windows that
were open at the first of the rows come out wrong for a while.

With `precise` (HA, section 6) the controller holds, for each unit, a position to begin after, the high watermark
up to which its rows are known to the consumers, and their number. A unit that begins again keeps to itself what it
makes up to the watermark, and goes on with the numbers. For units that do not come to the state that they had by
themselves it holds determinants as well: the phases of windows at that position, and, for arbitrary units, the
events since, of which it is told before output leaves.

In the paper a row goes once the next unit but one has received what it caused (`adjacent_failures=False`): less is
kept, and neighbours that die at about the same time lose rows, which stops the query. Otherwise a row is kept
until nobody downstream depends on it, and any units may die together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import (
    Acknowledge,
    Action,
    Guard,
    Positions,
    Technique,
    TrimByCauses,
    refuse_unrecorded,
)
from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.operators.row_operators import ROW_BY_ROW
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval

_PROMISED = {
    OperatorClass.REPEATABLE: Recovery.REPEATING,
    OperatorClass.CONVERGENT_CAPABLE: Recovery.CONVERGENT,
    OperatorClass.DETERMINISTIC: Recovery.DIVERGENT,
    OperatorClass.ARBITRARY: Recovery.DIVERGENT,
}


class UpstreamBackup(Technique):
    name: ClassVar[str] = "upstream-backup"
    tracks_causes: ClassVar[bool] = True

    def __init__(self, *, interval_s: float = 0.05, precise: bool = False, adjacent_failures: bool = True) -> None:
        self._interval_s = checked_interval(
            "UpstreamBackup", interval_s, longest_s=dataflow_acknowledge_interval_s_max
        )
        self._precise = precise
        self.begins_with_oldest = not precise
        self.forgets_rows = not adjacent_failures

    def promises(self, network: OperatorClass) -> Recovery:
        return Recovery.PRECISE if self._precise else _PROMISED[network]

    def keeps_events(self, plan: UnitPlan) -> bool:
        return self._precise and plan.operator_class is OperatorClass.ARBITRARY

    def keeps_phases(self, plan: UnitPlan) -> bool:
        return self._precise and any(node.specification.keeps_phases for node in plan.operators)

    def check(self, network: Network) -> None:
        for node in network.operators:
            if not node.specification.bounds_causes:
                raise InvalidQuery(
                    f"upstream backup cannot run {node.name!r}: it is not known which rows its state depends on; "
                    "say process(..., remembers='10m') if it is rows of the last ten minutes, or use "
                    "SGuard(interval_s=1)"
                )
        if self._precise:
            refuse_unrecorded("upstream backup", network)
            for plan in network.units:
                _check_phases(plan)

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.SAFE, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return 0 if self._precise else incarnation

    def guard(self, unit: str, now_s: float) -> Guard:
        level = RowStage.RECEIVED if self.forgets_rows else RowStage.SAFE
        return _AcknowledgeGuard(self._interval_s, now_s, TrimByCauses(level, recorded=self._precise))


def _check_phases(plan: UnitPlan) -> None:
    """Refuse an operator with phases whose input a unit that begins empty makes wrong at first."""
    exact = set(plan.inputs)
    for node in plan.operators:
        if node.specification.keeps_phases and not exact.issuperset(node.inputs):
            raise InvalidQuery(
                f"upstream backup cannot be precise with {node.name!r} behind {node.inputs[0]!r} in unit "
                f"{plan.name!r}: a unit that begins empty gives it other rows at first; put it into a unit of its "
                "own with unit(), or use SGuard(interval_s=1)"
            )
        if isinstance(node.specification, ROW_BY_ROW) and exact.issuperset(node.inputs):
            exact.add(node.name)


class _AcknowledgeGuard(Guard):
    def __init__(self, interval_s: float, now_s: float, trim: TrimByCauses) -> None:
        self._interval_s = interval_s
        self._due_s = now_s + interval_s
        self._trim = trim
        self._received: Positions = {}

    def tick(self, now_s: float, positions: Positions) -> Iterable[Action]:
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._interval_s
        if positions != self._received:
            self._received = positions
            yield Acknowledge(RowStage.RECEIVED, positions)
        yield self._trim
