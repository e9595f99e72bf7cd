"""Sizes of copies of state as HA counts them: the rows that are new since the last copy (HA 5.1), not pages."""

from __future__ import annotations

from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.query.network import Network

from .costs import Costs


class CopySizes:
    def __init__(self, network: Network, costs: Costs) -> None:
        self._network = network
        self._costs = costs
        # For each incarnation of a unit: the number of input and output rows at its last capture.
        self._captured: dict[tuple[str, int], int] = {}

    def of(self, core: NodeCore, unit: str, incarnation: int) -> int:
        """Return the bytes of a copy that is captured now: new rows in operators and outputs, and positions."""
        taken_up = sum(
            rows
            for (name, _, operator), rows in core.operator_rows.items()
            if name == unit and operator in self._costs.keeps_rows
        )
        rows = taken_up + sum(core.produced(unit).values())
        new = rows - self._captured.get((unit, incarnation), 0)
        self._captured[unit, incarnation] = rows
        plan = self._network.unit(unit)
        return self._costs.checkpoint_bytes(new, len(plan.inputs) + len(plan.outputs))
