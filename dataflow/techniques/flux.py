"""Flux: each part of a stage is a pair of equals on two nodes (Shah, Hellerstein and Brewer, Flux 3 to 5).

Both nodes of a pair are given the same rows in the same order, and both send what they make: each to the consumers
in its own slot, which acknowledge it to the other one. When a node dies the other halves go on at once, and feed
both. Pairs that lost a half get another one on a standby node, one at a time, while all others go on.

`core/pair_reading.py` is the protocol at a consumer, `core/exchange.py` that at a producer, `core/pair_plan.py`
says where pairs are and in which order they are brought back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.pair_plan import PairPlan
from peacefs.dataflow.core.technique import Guard, StandbyKind, Technique
from peacefs.dataflow.limits import dataflow_tick_s
from peacefs.dataflow.model.numbers import check_count, is_number
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval

_LONGEST_S = 86_400.0


class Flux(Technique):
    """`Flux()` uses all nodes, and catches up as soon as it can.

    standby_nodes     so many nodes run nothing until another one dies
    interval_s        so often consumers acknowledge
    catch_up_after_s  a stage is brought back so long after the loss, and after the stage before
    """

    name: ClassVar[str] = "flux"
    standby = StandbyKind.ACTIVE
    symmetric: ClassVar[bool] = True

    def __init__(
        self, *, standby_nodes: int = 0, interval_s: float = dataflow_tick_s, catch_up_after_s: float = 0.0
    ) -> None:
        check_count(f"Flux(standby_nodes={standby_nodes!r})", standby_nodes, least=0)
        if not is_number(catch_up_after_s) or not 0 <= catch_up_after_s <= _LONGEST_S:
            raise InvalidQuery(
                f"Flux(catch_up_after_s={catch_up_after_s!r}): it has to be from 0 to {_LONGEST_S:g} seconds"
            )
        self._standby_nodes = standby_nodes
        self._catch_up_after_s = catch_up_after_s
        self.standby_interval_s = checked_interval("Flux", interval_s, longest_s=60.0)

    def check(self, network: Network) -> None:
        for node in network.operators:
            if node.specification.operator_class is OperatorClass.ARBITRARY:
                raise InvalidQuery(
                    f"Flux cannot pair {node.name!r}, which is arbitrary: its two replicas would make different "
                    "rows; use ActiveStandby(), or put it into a partitioned stage, with process(unique=...) "
                    "if it is a function that makes the same rows in any order"
                )

    def check_nodes(self, nodes: int) -> None:
        super().check_nodes(nodes)
        if nodes - self._standby_nodes < 2:
            raise InvalidQuery(
                f"Flux keeps the two of a pair on different nodes, and {nodes} with "
                f"{self._standby_nodes} of them standing by leave {max(nodes - self._standby_nodes, 0)}: give the "
                f"host {self._standby_nodes + 2} or more"
            )

    def pair_plan(self, network: Network) -> PairPlan:
        alone = [plan.name for plan in network.units if plan.name not in network.parts]
        chain = {**network.parts, **{unit: place for place, unit in enumerate(alone)}}
        return PairPlan(chain, network.levels, self._standby_nodes, self._catch_up_after_s)

    def promises(self, network: OperatorClass) -> Recovery:
        return Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.PRECISE

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.RECEIVED, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return 0

    def guard(self, unit: str, now_s: float) -> Guard:
        return Guard()
