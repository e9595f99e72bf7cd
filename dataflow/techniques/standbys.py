"""The common part of both standbys: a second node for each unit, and events in the order of one.

`core/pairs.py` does the work; the classes here say when and how much.
"""

from __future__ import annotations

from peacefs.dataflow.core.technique import Guard, Technique, refuse_unrecorded
from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval


class StandbyTechnique(Technique):
    def __init__(self, *, interval_s: float, precise: bool) -> None:
        self.standby_interval_s = checked_interval(
            type(self).__name__, interval_s, longest_s=dataflow_acknowledge_interval_s_max
        )
        self._precise = precise

    def promises(self, network: OperatorClass) -> Recovery:
        if self._precise:
            return Recovery.PRECISE
        return Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.REPEATING

    def records_events(self, unit: OperatorClass) -> bool:
        return self._precise and unit is OperatorClass.ARBITRARY

    def check_nodes(self, nodes: int) -> None:
        super().check_nodes(nodes)
        if nodes < 2:
            raise InvalidQuery(
                f"{self.name} wants a second node for each unit, and there is {nodes}: give the host 2 or more"
            )

    def check(self, network: Network) -> None:
        if self._precise:
            refuse_unrecorded(self.name, network)

    def lineage(self, incarnation: int) -> int:
        return 0 if self._precise else incarnation

    def guard(self, unit: str, now_s: float) -> Guard:
        return Guard()
