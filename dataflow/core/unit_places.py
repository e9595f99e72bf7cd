"""Placement of units and their standbys: which node each one begins on, and who takes over."""

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

# Maximum number of consecutive starts of a unit that never catches up. Then the query stops.
dataflow_starts_in_vain_max: Final = 10


def is_in_step(standby: StandbyPlacement) -> bool:
    """Return True if a standby has, or will make, all rows that its primary has."""
    return standby.fresh or standby.in_step


class UnitPlaces:
    """The placement, and the decisions that lead to it.

    Each start of a unit has a higher incarnation than all before it. The primary and the standby of a unit are
    never on the same node. `ControllerCore` reports events to it, and announces the resulting placement.
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
        # Bytes of each unit's checkpoint that each node has nearby.
        self._holders: dict[str, Mapping[str, int]] = {}
        # Number of starts of each unit since it last caught up.
        self._starts: Counter[str] = Counter()

    def __getitem__(self, unit: str) -> UnitPlacement:
        return self.placement.units[unit]

    @property
    def free(self) -> list[str]:
        return [unit for unit in self._units if self[unit].node is None]

    @property
    def lost(self) -> list[str]:
        """The units that have lost both of their nodes, and with them their state."""
        return [unit for unit in self.free if unit in self._replicas and self[unit].starts]

    def is_equal(self, unit: str) -> bool:
        return self._replicas.get(unit) is Replicas.EQUALS

    # -- changes ---------------------------------------------------------------------------------------------

    def change(self, unit: str, where: UnitPlacement) -> None:
        """Change a unit's place. The placement gets a new version, which the controller announces."""
        units = {**self.placement.units, unit: where}
        self.placement = Placement(self.placement.version + 1, units, self._members.addresses)

    def note(self, unit: str, where: UnitPlacement) -> None:
        """Change what is known of a unit without an announcement."""
        self.placement = replace(self.placement, units={**self.placement.units, unit: where})

    def replicas_at(self, unit: str, nodes: Mapping[str, int]) -> None:
        """Note how many bytes of a unit's checkpoint each node has nearby.

        The unit is recovered where most of them are.
        """
        self._holders[unit] = dict(nodes)

    def caught_up(self, unit: str) -> None:
        self._starts[unit] = 0

    def lose(self, node: str) -> None:
        """Note that a node is lost, and let standbys take over its units."""
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
        """Let the standby of a unit take over."""
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
        """Place units that run nowhere. Return a unit that has begun too often; None if there is none."""
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
        """Give each unit a standby on another node, if there is one.

        Standbys of `fresh` units begin together with the unit. Lost halves of a pair of equals are left to
        `bring_back`.
        """
        for unit in self._replicas:
            where = self[unit]
            if where.node is None or where.standby is not None or not self._has_other(where.node):
                continue
            if not self.is_equal(unit):
                self._give_standby(unit, self._choose(unit, other_than=where.node), fresh=unit in fresh)
            elif unit in fresh and (homes := self._homes(unit)) is not None:
                self._give_standby(unit, homes[1], fresh=True)

    def bring_back(self, now_s: float) -> None:
        """Restore the pair of equals whose turn it is, on the node that runs least."""
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
        """Return the node that has most of the checkpoint; among equals, the node that runs least."""
        holders = self._holders.get(unit, {})
        running = [self[other].node for other in self._units]
        standbys = [self[other].standby for other in self._units]
        running += [standby.node for standby in standbys if standby is not None]
        free = [node for node in self._members.names if node != other_than]
        return min(free, key=lambda node: (-holders.get(node, 0), running.count(node), node))
