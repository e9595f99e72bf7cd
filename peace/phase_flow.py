"""Assigns recurrences of equal periods to slots by minimum cost flows (OR-Tools).

Each recurrence is one unit of flow to one of the slots of the period. The cost of a slot is the square of its
load, so the cheapest flow is the plan with the least overload. Recurrences of different sizes are assigned by size
class, largest first, on top of the load that is already assigned. A slot is as long as an occurrence of the class
takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from ortools.graph.python import min_cost_flow

from .phases import Phased

#: Costs are integers: the squared work of one recurrence counts as this many units.
_SCALE = 10_000

#: Maximum load of a slot relative to the work of one recurrence, so that costs fit into 64 bits.
_HEIGHT_MAX = 1e9

#: Maximum number of slots of one flow, so that thousands of recurrences are assigned in a fraction of a second.
_SLOTS_MAX = 60


def assign_equal_periods(recurrences: Sequence[Phased]) -> dict[str, float]:
    """Return a phase for each recurrence without one. All recurrences must have the same period."""
    period_s = recurrences[0].period_s
    fine = 4 * _SLOTS_MAX
    loads = [0.0] * fine
    for each in recurrences:
        if each.phase_s is not None:
            _place(loads, each, each.phase_s % period_s / period_s * fine)
    phases_s: dict[str, float] = {}
    for members in _size_classes([each for each in recurrences if each.phase_s is None]):
        width = max(each.duration_s for each in members) / period_s
        slots = max(1, min(_SLOTS_MAX, int(1 / width) if width > 0 else _SLOTS_MAX))
        step = fine / slots
        base = [sum(loads[int(slot * step) : int((slot + 1) * step)]) for slot in range(slots)]
        work = max(max(each.loads.values(), default=0.0) for each in members)
        for each, slot in zip(members, _flow(len(members), base, work), strict=True):
            phases_s[each.name] = slot * period_s / slots
            _place(loads, each, slot * step)
    return phases_s


def _flow(count: int, base: Sequence[float], work: float) -> list[int]:
    """Return slots for `count` equal recurrences of `work` seconds. `base` is the present load of each slot.

    Recurrences of a class are interchangeable, so one source node stands for all of them. Costs are relative to
    the work of one of them, so that rounding them does not make small recurrences free.
    """
    heights = [min(_HEIGHT_MAX, load / work) if work > 0 else 0.0 for load in base]
    solver = min_cost_flow.SimpleMinCostFlow()
    source, sink = 0, len(base) + 1
    arcs: list[tuple[int, int]] = []
    each_max = ceil(count / len(base)) + count // 4 + 1
    for slot, height in enumerate(heights):
        for number in range(min(count, each_max)):
            cost = round(_SCALE * (2 * (height + number) + 1))
            arcs.append((solver.add_arc_with_capacity_and_unit_cost(source, slot + 1, 1, cost), slot))
        solver.add_arc_with_capacity_and_unit_cost(slot + 1, sink, count, 0)
    solver.set_node_supply(source, count)
    solver.set_node_supply(sink, -count)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise AssertionError(f"the flow of phases has status {status}")
    return [slot for arc, slot in arcs if solver.flow(arc)]


def _size_classes(recurrences: Sequence[Phased]) -> list[list[Phased]]:
    """Group recurrences whose work differs by less than a factor of two, largest first."""
    classes: dict[int, list[Phased]] = {}
    for each in sorted(recurrences, key=lambda each: each.name):
        work = max(each.loads.values(), default=0.0)
        classes.setdefault(round(log2(work)) if work > 0 else -99, []).append(each)
    return [classes[size] for size in sorted(classes, reverse=True)]


def _place(loads: list[float], each: Phased, at: float) -> None:
    width = max(1, round(each.duration_s / each.period_s * len(loads)))
    share = max(each.loads.values(), default=0.0) / width
    for slot in range(int(at), int(at) + width):
        loads[slot % len(loads)] += share
