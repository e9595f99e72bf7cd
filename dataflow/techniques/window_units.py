"""Units whose windows can be logged one by one, and the windows of each unit (CEC II)."""

from __future__ import annotations

from typing import Final

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.join import JoinWindow
from peacefs.dataflow.operators.row_operators import Filter, MapRows, Select
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.query.network import OperatorNode, UnitPlan
from peacefs.dataflow.window_checkpoints.contents import NoContents
from peacefs.dataflow.window_checkpoints.count_contents import CountContents
from peacefs.dataflow.window_checkpoints.join_contents import JoinContents
from peacefs.dataflow.window_checkpoints.time_contents import TimeContents
from peacefs.dataflow.window_checkpoints.windowed_state import UnitWindows
from peacefs.protocol.errors import InvalidQuery

_WINDOWED: Final = (AggregateCountWindows, AggregateTimeWindows, JoinWindow)
_STATELESS: Final = (Filter, MapRows, Select)
_OTHERS = "or choose SGuard, which covers every operator"


def check_windows(unit: UnitPlan) -> None:
    """Raise InvalidQuery, with advice, unless the windows of a unit can be logged."""
    windowed = [node for node in unit.operators if isinstance(node.specification, _WINDOWED)]
    for node in unit.operators:
        _check_operator(node)
    if len(windowed) > 1:
        raise InvalidQuery(
            f"CEC logs the windows of one operator a unit, and unit {unit.name!r} has "
            f"{' and '.join(repr(node.name) for node in windowed)}: put each into a unit of its own with "
            f"unit(), {_OTHERS}"
        )


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
    if isinstance(specification, JoinWindow) and specification.how is not None:
        raise InvalidQuery(
            f"CEC does not cover {node.name!r}: which rows have no partner is not in the log; use an inner join, "
            f"{_OTHERS}"
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
