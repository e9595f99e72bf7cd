"""Planned phases, compared with the optimum of an exact solver and with random phases."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest
from support.long_runs import often

from peacefs.peace.phases import DISKS, SLOTS, Phased, plan_phases

pytest.importorskip("ortools")

from oracles.phase_optimum import best_slots, cost

from peacefs.peace.phase_flow import assign_equal_periods

#: A plan has so many slots for each slot of the small cases.
LENGTH = 12
FINE = SLOTS // LENGTH


def small_case(rng: Random, periods: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Up to six recurrences as (period, duration, load), in slots; one has the longest period."""
    made = [(max(periods), rng.randint(1, 3), rng.randint(1, 4))]
    for _ in range(rng.randint(2, 5)):
        made.append((rng.choice(periods), rng.randint(1, 2), rng.randint(1, 4)))
    return made


def phased(case: list[tuple[int, int, int]]) -> list[Phased]:
    return [
        Phased(f"r{number}", float(period), float(duration), {DISKS: float(load * duration)})
        for number, (period, duration, load) in enumerate(case)
    ]


def fine_cost(case: list[tuple[int, int, int]], phases_s: dict[str, float], length: int) -> float:
    """Return the cost in slots of a twentieth of the case's, so that phases between its slots count, too."""
    fine = [(period * FINE, duration * FINE, load) for period, duration, load in case]
    first = [round(phases_s[f"r{number}"] * FINE) for number in range(len(case))]
    return cost(fine, first, length * FINE) / FINE


@pytest.mark.parametrize("periods", [(12,), (4, 12), (3, 6, 12)])
@pytest.mark.parametrize("seed", range(often(3, 60)))
def test_a_plan_is_near_the_best(periods: tuple[int, ...], seed: int) -> None:
    print(f"seed {seed}")
    case = small_case(Random(seed), periods)
    best, slots = best_slots(case, LENGTH)
    assert cost(case, slots, LENGTH) == best
    plan = plan_phases(phased(case), assign_equal_periods)
    aligned = fine_cost(case, dict.fromkeys(plan.phases_s, 0.0), LENGTH)
    found = fine_cost(case, plan.phases_s, LENGTH)
    # Of what the best plan saves against aligned phases, at least nine tenths are saved.
    assert aligned - found >= 0.9 * (aligned - best) - 1e-6


@pytest.mark.parametrize("seed", range(often(5, 50)))
def test_the_flow_alone_is_the_best_for_equal_periods_and_sizes(seed: int) -> None:
    """Each takes a quarter of the period, so there are four slots; squares are least when all have equally
    many.
    """
    rng = Random(seed)
    count, load = rng.randint(2, 9), rng.randint(1, 4)
    case = [(12, 3, load)] * count
    best, _ = best_slots(case, LENGTH)
    assert fine_cost(case, assign_equal_periods(phased(case)), LENGTH) == pytest.approx(best)


@pytest.mark.parametrize("work_s", [1e-9, 1e-3, 1.0, 1e9])
def test_the_flow_spreads_recurrences_of_any_size(work_s: float) -> None:
    """Six that are short fit into slots of their own."""
    short = [Phased(f"r{n}", 10.0, 0.1, {DISKS: work_s}) for n in range(6)]
    assert len(set(assign_equal_periods(short).values())) == 6


def test_who_has_a_phase_keeps_it_when_others_come_and_go() -> None:
    rng = Random(4)
    first = [Phased(f"r{n}", 10.0, 0.5, {DISKS: rng.uniform(0.1, 0.3)}) for n in range(20)]
    plan = plan_phases(first, assign_equal_periods)
    known = [replace(each, phase_s=plan.phases_s[each.name]) for each in first[3:]]
    more = plan_phases([*known, Phased("new", 10.0, 0.5, {DISKS: 0.2})], assign_equal_periods)
    assert "new" in more.phases_s and len(more.moved) <= 3
    assert all(more.phases_s[each.name] == each.phase_s for each in known if each.name not in more.moved)
    again = plan_phases([replace(each, phase_s=plan.phases_s[each.name]) for each in first], assign_equal_periods)
    assert again.moved == []


def test_what_is_not_movable_stays_and_others_avoid_it() -> None:
    fixed = Phased("theirs", 10.0, 2.0, {DISKS: 2.0}, phase_s=3.0, movable=False)
    plan = plan_phases([fixed, Phased("ours", 10.0, 2.0, {DISKS: 2.0})])
    assert plan.phases_s["theirs"] == 3.0
    apart_s = abs(plan.phases_s["ours"] - 3.0) % 10.0
    assert min(apart_s, 10.0 - apart_s) >= 2.0


def test_ten_thousand_phases_are_planned_within_a_second() -> None:
    rng = Random(1)
    many = [
        Phased(f"r{n}", rng.choice((10.0, 20.0, 40.0)), rng.uniform(0.2, 2), {DISKS: rng.uniform(0.001, 0.003)})
        for n in range(10_000)
    ]
    begun_s = time.process_time()
    plan = plan_phases(many, assign_equal_periods)
    assert time.process_time() - begun_s < 1.0
    assert len(plan.phases_s) == 10_000
