"""The best phases of a few recurrences, found by OR-Tools' CP-SAT: the least sum of squared loads of the slots.

Each recurrence has a period and a duration in slots, and a load in each slot that it occupies. It imports nothing
of the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model


def best_slots(recurrences: Sequence[tuple[int, int, int]], slots: int) -> tuple[int, list[int]]:
    """Return the least cost, and the first slot of each (period, duration, load)."""
    model = cp_model.CpModel()
    chosen = []
    loads: list[list[cp_model.LinearExprT]] = [[] for _ in range(slots)]
    for period, duration, load in recurrences:
        at = [model.new_bool_var("") for _ in range(period)]
        model.add_exactly_one(at)
        chosen.append(at)
        for slot in range(slots):
            loads[slot].append(load * sum(at[(slot - back) % period] for back in range(duration)))
    most = sum(load for _, _, load in recurrences)
    squares = []
    for terms in loads:
        total, square = model.new_int_var(0, most, ""), model.new_int_var(0, most * most, "")
        model.add(total == sum(terms))
        model.add_multiplication_equality(square, [total, total])
        squares.append(square)
    model.minimize(sum(squares))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value), [
        next(slot for slot, var in enumerate(at) if solver.value(var)) for at in chosen
    ]


def cost(recurrences: Sequence[tuple[int, int, int]], first: Sequence[int], slots: int) -> int:
    """Return the sum of the squared loads of all slots."""
    loads = [0] * slots
    for (period, duration, load), begin in zip(recurrences, first, strict=True):
        for at in range(begin, begin + slots, period):
            for slot in range(at, at + duration):
                loads[slot % slots] += load
    return sum(load * load for load in loads)
