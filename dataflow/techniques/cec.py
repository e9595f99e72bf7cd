"""CEC: each unit logs its output with checkpoints of single windows among it (Sebepou and Magoutis, CEC).

After a failure any node reads the unit's log backwards until it has found each open window once, and the producers
send again what has come since the oldest of those. Each window leaves out what it has seen: recovery is precise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import AcknowledgeCovered, Action, Guard, Positions, TakeCheckpoint, Technique
from peacefs.dataflow.limits import (
    dataflow_acknowledge_interval_s_max,
    dataflow_checkpoint_retry_s,
    dataflow_checkpoints_per_start_max,
)
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.join import JoinWindow
from peacefs.dataflow.operators.row_operators import Filter, MapRows, Select
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.query.network import Network, OperatorNode, UnitPlan
from peacefs.dataflow.window_checkpoints.contents import NoContents
from peacefs.dataflow.window_checkpoints.count_contents import CountContents
from peacefs.dataflow.window_checkpoints.extent import Targets, WindowChoice
from peacefs.dataflow.window_checkpoints.join_contents import JoinContents
from peacefs.dataflow.window_checkpoints.time_contents import TimeContents
from peacefs.dataflow.window_checkpoints.windowed_state import CheckPolicy, UnitWindows
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval

# A unit's log is committed so often.
cec_commit_s: Final = 0.05


_WINDOWED = (AggregateCountWindows, AggregateTimeWindows, JoinWindow)
_STATELESS = (Filter, MapRows, Select)
_OTHERS = "or choose SGuard, which covers every operator"


class CEC(Technique):
    """`CEC()` keeps both of the paper's targets at their defaults.

    choice       which windows are checked: `Targets(extent=Q, replay_rows=U)`, with Q as a multiple of the open
                 windows, `CostBenefit(failures_per_day=...)`, or `OpenOnly()`
    interval_s   the time for checks, CI, in each
    period_s     period, CP
    commit_s     the log is committed so often
    """

    name: ClassVar[str] = "cec"
    takes_checkpoints: ClassVar[bool] = True
    loads_itself: ClassVar[bool] = True

    def __init__(
        self,
        choice: WindowChoice | None = None,
        *,
        interval_s: float = 0.005,
        period_s: float = 0.1,
        commit_s: float = cec_commit_s,
    ) -> None:
        longest_s = dataflow_acknowledge_interval_s_max
        for name, value in (("interval_s", interval_s), ("period_s", period_s), ("commit_s", commit_s)):
            checked_interval("CEC", value, longest_s=longest_s, name=name)
        if interval_s > period_s:
            raise InvalidQuery(
                f"CEC(interval_s={interval_s}, period_s={period_s}): checks take some of each period, and not more"
            )
        if choice is not None and (isinstance(choice, type) or not isinstance(choice, WindowChoice)):
            raise InvalidQuery(
                f"CEC({choice!r}): a choice of windows is wanted: Targets(), CostBenefit() or OpenOnly()"
            )
        self.checks = CheckPolicy(choice if choice is not None else Targets(), interval_s, period_s)
        self._commit_s = commit_s

    def check(self, network: Network) -> None:
        for unit in network.units:
            windowed = [node for node in unit.operators if isinstance(node.specification, _WINDOWED)]
            for node in unit.operators:
                _check_operator(node)
            if len(windowed) > 1:
                raise InvalidQuery(
                    f"CEC logs the windows of one operator a unit, and unit {unit.name!r} has "
                    f"{' and '.join(repr(node.name) for node in windowed)}: put each into a unit of its own with "
                    f"unit(), {_OTHERS}"
                )

    def promises(self, network: OperatorClass) -> Recovery:
        return Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.PRECISE

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.SAFE, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return 0

    def guard(self, unit: str, now_s: float) -> Guard:
        return _LogGuard(self._commit_s, now_s)


def windows_of(plan: UnitPlan) -> UnitWindows:
    """Return the windows of a unit."""
    for node in plan.operators:
        specification = node.specification
        if isinstance(specification, AggregateCountWindows):
            return UnitWindows(node.name, CountContents(specification))
        if isinstance(specification, AggregateTimeWindows):
            return UnitWindows(node.name, TimeContents(specification))
        if isinstance(specification, JoinWindow):
            return UnitWindows(node.name, JoinContents())
    return UnitWindows(None, NoContents())


def _check_operator(node: OperatorNode) -> None:
    specification = node.specification
    if isinstance(specification, (AggregateCountWindows, AggregateTimeWindows)) and specification.wants_time:
        raise InvalidQuery(
            f"CEC does not cover {node.name!r}: what a timeout does depends on when rows came, and is not in the "
            f"log; leave the timeout out, {_OTHERS}"
        )
    if specification.operator_class is OperatorClass.ARBITRARY:
        raise InvalidQuery(
            f"CEC does not cover {node.name!r} ({specification.kind}): with the same rows it may put out others; "
            "put sort() or a join in its place, or choose SGuard and read what it promises"
        )
    if not isinstance(specification, (*_WINDOWED, *_STATELESS)):
        raise InvalidQuery(
            f"CEC covers aggregates over windows, joins, and filter, map and select; {node.name!r} is "
            f"{specification.kind}: leave it out, {_OTHERS}"
        )


class _LogGuard(Guard):
    """One commit at a time, as soon as one is due and rows have come."""

    def __init__(self, commit_s: float, now_s: float) -> None:
        self._commit_s = commit_s
        self._due_s = now_s
        self._number = 0
        self._committed: Positions | None = None
        self._running = self._failed = False

    def tick(self, now_s: float, positions: Positions) -> Iterable[Action]:
        if self._failed:
            self._failed, self._committed = False, None
            self._due_s = now_s + dataflow_checkpoint_retry_s
        if self._running or now_s < self._due_s or positions == self._committed:
            return ()
        self._number = self._number % (dataflow_checkpoints_per_start_max - 1) + 1
        self._due_s = now_s + self._commit_s
        self._committed, self._running = positions, True
        return (TakeCheckpoint(self._number),)

    def hurry(self) -> None:
        # Another commit checks more windows, though no rows have come.
        self._committed = None

    def recorded(self, number: int) -> Iterable[Action]:
        if not self._running or number != self._number:
            return ()
        self._running = False
        return (AcknowledgeCovered(RowStage.SAFE),)

    def failed(self, number: int) -> None:
        if number == self._number:
            self._running, self._failed = False, True
