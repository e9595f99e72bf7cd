"""Places of units and of their standbys: which node each begins on, and who takes over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from peacefs.dataflow.recovery.technique import Replicas

from .members import Members
from .messages import Placement, StandbyPlacement, UnitPlacement
from .pair_plan import CatchUp
from .query_recovery import RecoveryPlan

# A query stops when a unit has begun so often, one start after the other, and has never caught up.
dataflow_starts_in_vain_max: Final = 10


def is_in_step(standby: StandbyPlacement) -> bool:
    """Return whether a standby has, or will make, all that its primary has."""
    return standby.fresh or standby.in_step


class UnitPlaces:
    """The placement, and the decisions of which it is made.

    Each start of a unit has a higher incarnation than the ones before. The primary and the standby of a unit are
    never on one node. `ControllerCore` says what has happened, and announces what follows.
    """

    def __init__(
        self,
        units: Collection[str],
        edge: Mapping[str, UnitPlacement],
        plan: RecoveryPlan,
        members: Members,
        *,
        resumed: Mapping[str, tuple[int, int]],
        starts_before: int,
    ) -> None:
        self._units, self._members = tuple(units), members
        self._replicas, self._pairs = plan.replicas, plan.pairs
        self._catch_up = None if plan.pairs is None else CatchUp(plan.pairs)
        free = {unit: UnitPlacement(None, starts_before, resumed.get(unit)) for unit in units}
        self.placement = Placement(1, {**free, **edge})
        # Bytes of each unit's checkpoint that nodes have nearby.
        self._holders: dict[str, Mapping[str, int]] = {}
        # Starts of each unit since it had caught up.
        self._starts: Counter[str] = Counter()

    def __getitem__(self, unit: str) -> UnitPlacement:
        return self.placement.units[unit]

    @property
    def free(self) -> list[str]:
        return [unit for unit in self._units if self[unit].node is None]

    @property
    def lost(self) -> list[str]:
        """The units that have lost both of their nodes, and their state with them."""
        return [unit for unit in self.free if unit in self._replicas and self[unit].starts]

    def is_equal(self, unit: str) -> bool:
        return self._replicas.get(unit) is Replicas.EQUALS

    # -- changes ---------------------------------------------------------------------------------------------

    def change(self, unit: str, where: UnitPlacement) -> None:
        """Change a unit's place, which others have to be told of."""
        units = {**self.placement.units, unit: where}
        self.placement = Placement(self.placement.version + 1, units, self._members.addresses)

    def note(self, unit: str, where: UnitPlacement) -> None:
        """Change what is known of a unit, which nobody has to be told of."""
        self.placement = replace(self.placement, units={**self.placement.units, unit: where})

    def replicas_at(self, unit: str, nodes: Mapping[str, int]) -> None:
        """Learn how many bytes of a unit's checkpoint each node has nearby: it is recovered where most are."""
        self._holders[unit] = dict(nodes)

    def caught_up(self, unit: str) -> None:
        self._starts[unit] = 0

    def lose(self, node: str) -> None:
        """Learn that a node is gone: standbys take over what it ran."""
        for unit in self._units:
            where = self[unit]
            standby = where.standby
            if where.node == node and standby is not None:
                self.take_over(unit)
            elif where.node == node:
                self.change(unit, replace(where, node=None))
            elif standby is not None and standby.node == node:
                self.change(unit, replace(where, standby=None))

    def take_over(self, unit: str) -> None:
        """Let the standby of a unit be the unit."""
        where = self[unit]
        standby = where.standby
        assert standby is not None
        both_read = self._replicas[unit].both_read
        slot = 1 - where.slot if both_read else where.slot
        self.change(
            unit,
            replace(
                where,
                node=standby.node,
                incarnation=standby.incarnation,
                slot=slot,
                standby=None,
                took_over=True,
            ),
        )

    # -- decisions -------------------------------------------------------------------------------------------

    def begin(self, free: Collection[str]) -> str | None:
        """Place units that run nowhere. Return one that has begun too often, if there is one."""
        for unit in free:
            self._starts[unit] += 1
            if self._starts[unit] > dataflow_starts_in_vain_max:
                return unit
            where = self[unit]
            incarnation = where.incarnation + 1
            homes = self._homes(unit)
            chosen = replace(where, node=homes[0] if homes else self._choose(unit), incarnation=incarnation)
            if unit in self._replicas:
                chosen = replace(chosen, starts=incarnation)
            self.change(unit, chosen)
        return None

    def give_standbys(self, fresh: Collection[str]) -> None:
        """Give each unit a standby on another node, if there is one. Those of `fresh` units begin with them."""
        for unit in self._replicas:
            where = self[unit]
            if where.node is None or where.standby is not None or not self._has_other(where.node):
                continue
            if not self.is_equal(unit):
                self._give_standby(unit, self._choose(unit, other_than=where.node), fresh=unit in fresh)
            elif unit in fresh and (homes := self._homes(unit)) is not None:
                self._give_standby(unit, homes[1], fresh=True)

    def bring_back(self, now_s: float) -> None:
        """Give the pair of equals whose turn it is another half, on a node that runs little."""
        if self._catch_up is None:
            return
        placed = {unit: self[unit] for unit in self._units if self.is_equal(unit)}
        busy = any(where.standby is not None and not is_in_step(where.standby) for where in placed.values())
        alone = [unit for unit, where in placed.items() if where.node is not None and where.standby is None]
        unit = self._catch_up.next(now_s, alone, busy=busy)
        if unit is not None and self._has_other(placed[unit].node):
            self._give_standby(unit, self._choose(unit, other_than=placed[unit].node), fresh=False)

    def _homes(self, unit: str) -> tuple[str, str] | None:
        return self._pairs.homes(unit, self._members.names) if self._pairs and self.is_equal(unit) else None

    def _has_other(self, node: str | None) -> bool:
        return any(name != node for name in self._members.names)

    def _give_standby(self, unit: str, node: str, *, fresh: bool) -> None:
        where = self[unit]
        starts = where.starts + 1
        self.change(unit, replace(where, standby=StandbyPlacement(node, starts, fresh=fresh), starts=starts))

    def _choose(self, unit: str, other_than: str | None = None) -> str:
        """Return the node that has most of the checkpoint, then that which runs least."""
        holders = self._holders.get(unit, {})
        running = [self[other].node for other in self._units]
        standbys = [self[other].standby for other in self._units]
        running += [standby.node for standby in standbys if standby is not None]
        free = [node for node in self._members.names if node != other_than]
        return min(free, key=lambda node: (-holders.get(node, 0), running.count(node), node))
