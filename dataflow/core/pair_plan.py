"""Placement of pairs, and the order in which lost halves are restored (Flux 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PairPlan:
    """Places pairs by *chained declustering*: the first half on a node, the second on the next node of a circle.

    A dead node is then half of several pairs, whose other halves are on different nodes.
    """

    #: The place of each unit in the chain.
    chain: Mapping[str, int]
    #: Units by stage, producers first. Lost halves are restored in this order.
    levels: Sequence[Sequence[str]]
    #: Number of nodes that run nothing until a node is lost.
    standby_nodes: int = 0
    #: Delay from the loss, or from the previous stage, until a stage is restored.
    wait_s: float = 0.0

    def homes(self, unit: str, members: Collection[str]) -> tuple[str, str] | None:
        """Return the nodes of a unit's pair when a query begins; None if there are fewer than two nodes."""
        active = sorted(members)[: max(len(members) - self.standby_nodes, 0)]
        if len(active) < 2:
            return None
        at = self.chain[unit]
        return active[at % len(active)], active[(at + 1) % len(active)]


class CatchUp:
    """Decides which unit is restored next: one at a time, producers first, each stage when it is due."""

    def __init__(self, plan: PairPlan) -> None:
        self._plan = plan
        # For each unit without a second half: since when.
        self._alone: dict[str, float] = {}
        self._level: int | None = None
        self._level_begun_s = 0.0

    def next(self, now_s: float, alone: Collection[str], *, busy: bool) -> str | None:
        """Return a unit of `alone` to restore now; None if no unit is due, or while one is under way (`busy`)."""
        self._alone = {unit: self._alone.get(unit, now_s) for unit in alone}
        if busy:
            return None
        if not alone:
            self._level = None
            return None
        level, unit = next(
            (level, unit) for level, units in enumerate(self._plan.levels) for unit in units if unit in alone
        )
        if level != self._level:
            begun_s = self._alone[unit] if self._level is None else max(self._alone[unit], self._level_begun_s)
            if now_s < begun_s + self._plan.wait_s:
                return None
            self._level, self._level_begun_s = level, now_s
        return unit
