"""Places of pairs, and the order in which lost ones are brought back (Flux 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PairPlan:
    """Pairs are placed by *chained declustering*: the first on a node and the one after it, and so on around.

    So a node that dies is half of several pairs, whose other halves are on different nodes.
    """

    #: The place in the chain of each unit.
    chain: Mapping[str, int]
    #: Units by stages, those that feed others first: lost ones are brought back in this order.
    levels: Sequence[Sequence[str]]
    #: So many nodes run nothing, until something is lost.
    standby_nodes: int = 0
    #: A stage is brought back so long after the loss, and after the stage before it.
    wait_s: float = 0.0

    def homes(self, unit: str, members: Collection[str]) -> tuple[str, str] | None:
        """Return the nodes of a unit's pair when a query begins; None if there are less than two."""
        active = sorted(members)[: max(len(members) - self.standby_nodes, 0)]
        if len(active) < 2:
            return None
        at = self.chain[unit]
        return active[at % len(active)], active[(at + 1) % len(active)]


class CatchUp:
    """Decides which unit is brought back next: one at a time, bottom up, and each stage when it is due."""

    def __init__(self, plan: PairPlan) -> None:
        self._plan = plan
        # Since when each unit that has no other half is alone.
        self._alone: dict[str, float] = {}
        self._level: int | None = None
        self._level_begun_s = 0.0

    def next(self, now_s: float, alone: Collection[str], *, busy: bool) -> str | None:
        """Return a unit to bring back now, of those that are `alone`; none while one is under way (`busy`)."""
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
