"""SGuard: each unit stores checkpoints while it goes on, and its producers keep the rows since (SGuard 3 and 4).

A checkpoint is taken each interval, and earlier when producers would run out of room for the rows since the last.

After a failure any node loads the latest checkpoint and asks the producers for what came after it. The rows that
it produces again have the numbers that they had, so that consumers leave them out: recovery is precise. A unit
that is not deterministic repeats its events since the checkpoint, which the controller keeps before output leaves
(HA 6). With `precise=False` a recovered unit numbers anew, and consumers get rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import Acknowledge, Action, Guard, Positions, TakeCheckpoint, Technique
from peacefs.dataflow.limits import dataflow_checkpoint_retry_s, dataflow_incarnations_per_run_max
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network, UnitPlan

from .intervals import checked_interval

# The longest intervals that techniques take: of checkpoints, and of acknowledgements.
dataflow_checkpoint_interval_s_max: Final = 86_400.0


class SGuard(Technique):
    name: ClassVar[str] = "sguard"
    takes_checkpoints: ClassVar[bool] = True

    def __init__(self, *, interval_s: float, precise: bool = True) -> None:
        self._interval_s = checked_interval("SGuard", interval_s, longest_s=dataflow_checkpoint_interval_s_max)
        self._precise = precise

    def promises(self, network: OperatorClass) -> Recovery:
        if self._precise:
            return Recovery.PRECISE
        return Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.REPEATING

    def promises_for(self, network: Network) -> Recovery:
        if all(plan.is_recordable for plan in network.units):
            return self.promises(network.operator_class)
        return Recovery.DIVERGENT

    def keeps_events(self, plan: UnitPlan) -> bool:
        return self._precise and plan.operator_class is OperatorClass.ARBITRARY and plan.is_recordable

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.SAFE, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return 0 if self._precise else incarnation

    def lineage_of(self, plan: UnitPlan, network: Network, incarnation: int) -> int:
        if plan.operator_class is OperatorClass.ARBITRARY and not self.keeps_events(plan):
            # It may make other rows under the same numbers: a consumer would leave out rows that it has never had.
            return incarnation
        if self._precise and plan.name in network.units_behind_chance:
            # Events are gone with the program that has kept them, and so are the rows that came of them.
            return (incarnation - 1) // dataflow_incarnations_per_run_max
        return self.lineage(incarnation)

    def guard(self, unit: str, now_s: float) -> Guard:
        return _CheckpointGuard(self._interval_s, now_s)


class _CheckpointGuard(Guard):
    """One checkpoint at a time. What it covers is acknowledged when the controller knows of it, not before."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = now_s + interval_s
        # True if the next is wanted before it is due, but not before this.
        self._hurries = False
        self._earliest_s = now_s
        self._number = 0
        self._covered: Positions = {}
        # The positions that the checkpoint covers which is being stored.
        self._storing: Positions | None = None
        # True when the last one was not stored: another is taken a while later, and not an interval.
        self._failed = False

    def tick(self, now_s: float, positions: Positions) -> Iterable[Action]:
        if self._failed:
            self._failed = False
            self._due_s = self._earliest_s = now_s + min(self._interval_s, dataflow_checkpoint_retry_s)
        due_s = self._earliest_s if self._hurries else self._due_s
        if self._storing is not None or now_s < due_s or positions == self._covered:
            return ()
        self._number += 1
        self._hurries = False
        self._due_s = now_s + self._interval_s
        self._storing = positions
        return (TakeCheckpoint(self._number),)

    def hurry(self) -> None:
        self._hurries = True

    def recorded(self, number: int) -> Iterable[Action]:
        if self._storing is None or number != self._number:
            return ()
        self._covered, self._storing = self._storing, None
        return (Acknowledge(RowStage.SAFE, self._covered),)

    def failed(self, number: int) -> None:
        if number == self._number:
            self._storing, self._failed = None, True
