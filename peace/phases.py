"""Chooses when recurrences write within their periods, so that they do not meet on disks and links.

The time of a plan is a circle: the least common multiple of the periods, cut into slots. Each occurrence loads the
pool of all disks and the links out of its writer's rack, for as long as it takes alone. The cost of a plan is the
sum over slots of the squared loads, each relative to its capacity. Equal loads in all slots have the least cost.

Recurrences of *equal* periods are assigned to slots by minimum cost flows (`phase_flow`). Two recurrences are
*harmonic* if one period is a multiple of the other. They occupy several coupled slots, which a flow would move
apart. For them, and after a flow, a local search moves one recurrence at a time to its cheapest slot. If periods
have no small common multiple, a plan is no better than chance, so such recurrences get no common plan.

A recurrence keeps its phase, unless moving it lowers its own cost by `WORTH_MOVING`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

#: The number of slots in a plan's time.
SLOTS: Final = 240

#: The maximum time of a plan, as a multiple of its longest period.
_PERIODS_MAX = 6

#: Periods that differ by at most this share count as equal or harmonic.
_ALIKE = 0.01

#: A recurrence is moved if its own cost falls by at least this share.
WORTH_MOVING: Final = 0.2

#: Rounds of the local search. With more than `_FEW` recurrences, there is one round and a quarter of the slots.
_ROUNDS = 4
_FEW = 500

#: The resource that all recurrences use. The other resources are the links out of each rack.
DISKS: Final = "disks"


@dataclass(frozen=True, slots=True)
class Phased:
    """A recurrence to be planned. Only a `movable` one may be moved.

    `duration_s` is the duration of an occurrence that is alone in the cluster. `loads` are its seconds of work by
    resource. `phase_s` is its present phase, None if it has none yet.
    """

    name: str
    period_s: float
    duration_s: float
    loads: Mapping[str, float]
    phase_s: float | None = None
    movable: bool = True


#: Assigns phases to recurrences with equal periods and without a phase.
AssignEqual = Callable[[Sequence[Phased]], Mapping[str, float]]


@dataclass(slots=True)
class PhasePlan:
    """The phases of all recurrences that could be placed, and the names of those that were moved."""

    phases_s: dict[str, float] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)


class _Circle:
    """The loads of all slots, by resource, and the slot of each recurrence."""

    def __init__(self, length_s: float, slots: int) -> None:
        self.slots = slots
        self.slot_s = length_s / slots
        self._loads: dict[str, list[float]] = {}

    def place(self, each: Phased, slot: int, more: float = 1.0) -> None:
        period, width = self.shape(each)
        for resource, seconds in each.loads.items():
            loads = self._loads.setdefault(resource, [0.0] * self.slots)
            share = more * seconds / width
            for first in range(slot, slot + self.slots, period):
                for at in range(first, first + width):
                    loads[at % self.slots] += share

    def shape(self, each: Phased) -> tuple[int, int]:
        """Return the period and the duration of a recurrence in slots."""
        period = max(1, round(each.period_s / self.slot_s))
        return period, min(period, max(1, ceil(each.duration_s / self.slot_s - 1e-9)))

    def costs(self, each: Phased) -> list[float]:
        """Return the additional cost of placing a recurrence at each slot of its period."""
        period, width = self.shape(each)
        total = [0.0] * period
        for resource, seconds in each.loads.items():
            loads = self._loads.get(resource)
            if loads is None:
                continue
            folded = [sum(loads[first::period]) for first in range(period)]
            running, factor = sum(folded[at % period] for at in range(width)), 2 * seconds / width
            for first in range(period):
                total[first] += factor * running
                running += folded[(first + width) % period] - folded[first]
        return total

    def slot_of(self, each: Phased, phase_s: float) -> int:
        return round(phase_s % each.period_s / self.slot_s) % self.shape(each)[0]


def plan_phases(recurrences: Sequence[Phased], assign_equal: AssignEqual | None = None) -> PhasePlan:
    """Return a phase for each recurrence. `assign_equal` makes the first plan for equal periods."""
    plan = PhasePlan()
    for group in _harmonic_groups(recurrences):
        first: Mapping[str, float] = {}
        if assign_equal is not None and all(each.period_s == group[0].period_s for each in group):
            first = assign_equal(group)
        _plan_group(group, first, plan)
    return plan


def _plan_group(group: Sequence[Phased], first: Mapping[str, float], plan: PhasePlan) -> None:
    few = len(group) <= _FEW
    circle = _Circle(_length_s(group), SLOTS if few else SLOTS // 4)
    slots: dict[str, int] = {}
    for each in group:
        phase_s = first.get(each.name, each.phase_s)
        if phase_s is not None:
            slots[each.name] = circle.slot_of(each, phase_s)
            circle.place(each, slots[each.name])
    movable = sorted(
        (each for each in group if each.movable),
        key=lambda each: (-max(each.loads.values(), default=0.0) / each.period_s, each.name),
    )
    for _ in range(_ROUNDS if few else 1):
        if not sum(_improve(each, circle, slots) for each in movable):
            break
    for each in group:
        if each.name not in slots:
            continue
        if each.phase_s is not None and circle.slot_of(each, each.phase_s) == slots[each.name]:
            plan.phases_s[each.name] = each.phase_s
            continue
        plan.phases_s[each.name] = slots[each.name] * circle.slot_s
        plan.moved.append(each.name)


def _improve(each: Phased, circle: _Circle, slots: dict[str, int]) -> bool:
    """Move a recurrence to its cheapest slot if that is worthwhile. Return whether it was moved."""
    now = slots.get(each.name)
    if now is not None:
        circle.place(each, now, -1.0)
    costs = circle.costs(each)
    best = min(range(len(costs)), key=costs.__getitem__)
    worth = WORTH_MOVING if each.phase_s is not None else 0.0
    keeps = now is not None and costs[best] >= (1 - worth) * costs[now] - 1e-12
    chosen = now if keeps and now is not None else best
    slots[each.name] = chosen
    circle.place(each, chosen)
    return chosen != now


def _harmonic_groups(recurrences: Sequence[Phased]) -> list[list[Phased]]:
    """Group recurrences whose periods have a common multiple of at most a few of the longest period."""
    groups: list[tuple[float, list[Phased]]] = []
    for each in sorted(recurrences, key=lambda each: (-each.period_s, each.name)):
        for number, (length_s, members) in enumerate(groups):
            common_s = _common_s(length_s, each.period_s, _PERIODS_MAX * members[0].period_s)
            if common_s is not None:
                groups[number] = (common_s, members)
                members.append(each)
                break
        else:
            groups.append((each.period_s, [each]))
    return [members for _, members in groups]


def _length_s(group: Sequence[Phased]) -> float:
    length_s = group[0].period_s
    for each in group:
        found = _common_s(length_s, each.period_s, _PERIODS_MAX * group[0].period_s)
        assert found is not None
        length_s = found
    return length_s


def _common_s(length_s: float, period_s: float, longest_s: float) -> float | None:
    """Return the smallest multiple of a length that is nearly a multiple of a period; None if too long."""
    times = 1
    while times * length_s <= longest_s * (1 + _ALIKE):
        ratio = times * length_s / period_s
        if abs(ratio - round(ratio)) <= _ALIKE * ratio and round(ratio) >= 1 and SLOTS / round(ratio) >= 2:
            return times * length_s
        times += 1
    return None
