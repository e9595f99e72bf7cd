"""Compares policies on periodic loads: recurring checkpoints, together with bulk writers.

Load is a share of what the cluster sustains under `express` with more writers than it can serve. The stretch of a
checkpoint is its duration divided by its duration alone in the cluster. For the bounded stretch, durations below
one second count as one second. Both are computed for blocking checkpoints only. A checkpoint, blocking or due,
misses its deadline if it is not written before its next occurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from statistics import fmean, median
from typing import Final

from peacefs.peace.phases import DISKS, Phased, plan_phases
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.policies.paper import PaperPolicy
from peacefs.peace.policies.random import RandomPolicy
from peacefs.peace.policies.timely import TimelyPolicy
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.model import Topology

from .baselines import DeadlinePolicy, ReservingPolicy, SinbadPolicy, SincroniaPolicy
from .comparison import MakePolicy
from .recurrent_load import BulkWriters, Recurrence, chunks_of, occurrences, recurrences
from .scenarios import REPLICAS, star
from .simulate import Arrival, Loss, Simulation, simulate

HARMONIC_S: Final = (10.0, 20.0, 40.0)
VARIOUS_S: Final = (7.0, 11.0, 13.0, 17.0, 23.0, 37.0)

#: Checkpoints begin during the first time, and have the second time to end.
HORIZON_S: Final = 160.0
GRACE_S: Final = 60.0

#: The number of recurrences in each case.
_COUNT = 48


def _paper(topology: Topology, rng: Random) -> PaperPolicy:
    return PaperPolicy(topology, None, rng)


PERIODIC_POLICIES: dict[str, MakePolicy] = {
    "random": RandomPolicy,
    "paper": _paper,
    "sinbad": SinbadPolicy,
    "sincronia": SincroniaPolicy,
    "deadline": DeadlinePolicy,
    "reserving": ReservingPolicy,
    "express": ExpressPolicy,
    "timely": TimelyPolicy,
}

Phases = Callable[[Topology, list[Recurrence], Random], list[Recurrence]]


@dataclass(frozen=True, slots=True)
class PeriodicCase:
    """One load. `phases` chooses the phases of the recurrences, `change` changes them during the simulation."""

    name: str
    load: float
    phases: Phases
    periods_s: Sequence[float] = HARMONIC_S
    bulk_writers: int = 0
    change: Callable[[list[Recurrence], Random], list[Recurrence]] = lambda made, rng: made
    loses_node: bool = False


@dataclass(frozen=True, slots=True)
class PeriodicRow:
    """Means over seeds for one case and policy.

    `missed` is the share of checkpoints that were not written before their next occurrence. `bulk_share` is the
    share of the remaining capacity that bulk writers used, None without bulk writers.
    """

    case: str
    policy: str
    load: float
    checkpoints: float
    mean: float
    median: float
    p99: float
    worst: float
    bounded_p99: float
    missed: float
    bulk_share: float | None


# -- phases ----------------------------------------------------------------------------------------


def aligned(topology: Topology, made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Let all recurrences begin together, as Spark's triggers do."""
    return made


def jittered(topology: Topology, made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Choose random phases, which is the usual advice."""
    return [replace(each, phase_s=rng.random() * each.period_s) for each in made]


def planned(topology: Topology, made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Plan all phases."""
    return _planned(topology, made)


def partly_planned(topology: Topology, made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Give a third of the recurrences random, fixed phases, and plan the others."""
    free = [replace(each, is_ours=number % 3 > 0) for number, each in enumerate(jittered(topology, made, rng))]
    return _planned(topology, free)


def _planned(topology: Topology, made: list[Recurrence]) -> list[Recurrence]:
    plan = plan_phases([phased(topology, each) for each in made])
    return [replace(each, phase_s=plan.phases_s.get(each.name, each.phase_s)) for each in made]


def phased(topology: Topology, each: Recurrence) -> Phased:
    """Return a recurrence in the form that the planner of phases uses."""
    rack = topology.servers[each.writer].rack
    disks = sum(server.disk.best_rate for server in topology.servers.values())
    leaves = sum(link.bytes_s for link in topology.switch_links() if rack in link.ends)
    loads = {DISKS: REPLICAS * each.size / disks, rack: each.size / leaves}
    phase_s = None if each.is_ours else each.phase_s
    return Phased(each.name, each.period_s, alone_s(each.writer, each.size), loads, phase_s, each.is_ours)


# -- changes during the simulation -----------------------------------------------------------------


def _one_stops_and_one_starts_every_minute(made: list[Recurrence], rng: Random) -> list[Recurrence]:
    changed = list(made)
    for minute in range(1, int(HORIZON_S // 60) + 1):
        changed[minute] = replace(changed[minute], until_s=60.0 * minute)
        changed[-minute] = replace(changed[-minute], from_s=60.0 * minute)
    return changed


def _drifting(made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Let each occurrence come up to 5 % of its period late, at random."""
    return [replace(each, jitter=0.05) for each in made]


def _wrong_forecasts(made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """In the middle, of every four recurrences stop one, double one's size, halve one's period, restart one."""
    middle_s = HORIZON_S / 2
    changed = []
    for number, each in enumerate(made):
        before = replace(each, until_s=middle_s)
        after = replace(each, name=f"{each.name}-later", from_s=middle_s)
        changed.append(before)
        match number % 4:
            case 1:
                changed.append(replace(after, size=2 * each.size))
            case 2:
                changed.append(replace(after, period_s=each.period_s / 2, size=each.size // 2))
            case 3:
                changed.append(replace(after, phase_s=rng.random() * each.period_s))
    return changed


def _all_restarted(made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Restart all recurrences in the middle; from then on they begin together."""
    middle_s = HORIZON_S / 2
    before = [replace(each, until_s=middle_s) for each in made]
    after = [replace(each, name=f"{each.name}-later", from_s=middle_s, phase_s=middle_s) for each in made]
    return [*before, *after]


def _with_snapshots(made: list[Recurrence], rng: Random) -> list[Recurrence]:
    """Make a quarter of the recurrences snapshots, whose writes are of the due class."""
    return [
        replace(each, write_class=WriteClass.DUE if number % 4 == 0 else WriteClass.BLOCKING)
        for number, each in enumerate(made)
    ]


PERIODIC_CASES: dict[str, PeriodicCase] = {
    case.name: case
    for case in (
        PeriodicCase("bulk", 0.36, jittered, bulk_writers=8),
        PeriodicCase("bulk-planned", 0.36, planned, bulk_writers=8),
        PeriodicCase("light", 0.6, aligned),
        PeriodicCase("aligned", 0.84, aligned),
        PeriodicCase("jitter", 0.84, jittered),
        PeriodicCase("planned", 0.84, planned),
        PeriodicCase("partly-planned", 0.84, partly_planned, VARIOUS_S),
        PeriodicCase("jitter-various", 0.84, jittered, VARIOUS_S),
        PeriodicCase("drift", 0.84, planned, change=_drifting),
        PeriodicCase("snapshots", 0.84, aligned, change=_with_snapshots),
        PeriodicCase("comes-and-goes", 0.84, planned, change=_one_stops_and_one_starts_every_minute),
        PeriodicCase("wrong-forecasts", 0.6, planned, change=_wrong_forecasts),
        PeriodicCase("restart", 0.6, planned, change=_all_restarted),
        PeriodicCase("lost-node", 0.6, jittered, loses_node=True),
        PeriodicCase("saturated", 1.0, jittered),
    )
}


# -- running ---------------------------------------------------------------------------------------


def cluster() -> Topology:
    """Return the cluster of all cases: 16 nodes in 4 racks."""
    return star(4, 4, 1.0)


@lru_cache(maxsize=4)
def sustained_bytes_s() -> float:
    """Return the bytes per second of the cluster under `express`, with twice as many bulk writers as it serves."""
    topology, until_s = cluster(), 120.0
    bulk = BulkWriters(topology, Random(1), 2 * len(topology.servers))
    run = Simulation(topology, ExpressPolicy(topology, Random(1)), bulk.first(), follow=bulk.next)
    run.run_until(until_s)
    return sum(run.written.values()) / until_s


@lru_cache(maxsize=4096)
def alone_s(writer: str, size: int) -> float:
    """Return the duration of a write set alone in the cluster."""
    topology = cluster()
    arrival = Arrival(0.0, WriteSet("alone", writer, REPLICAS, chunks_of(size)))
    return simulate(topology, ExpressPolicy(topology, Random(0)), [arrival])["alone"].from_request_s


def load_of(case: PeriodicCase, seed: int) -> tuple[list[Recurrence], list[Arrival]]:
    """Return the recurrences of a case, and all their write sets."""
    topology, rng = cluster(), Random(seed)
    made = recurrences(topology, rng, _COUNT, case.periods_s, case.load * sustained_bytes_s())
    made = case.change(case.phases(topology, made, rng), rng)
    return made, [arrival for each in made for arrival in occurrences(each, HORIZON_S, rng)]


def periodic_simulation(case: PeriodicCase, policy: str, seed: int, arrivals: Sequence[Arrival]) -> Simulation:
    """Return a run that has not begun, with the case's bulk writers and lost node."""
    topology = cluster()
    bulk = BulkWriters(topology, Random(seed), case.bulk_writers)
    lost = sorted(topology.servers)[5]
    return Simulation(
        topology,
        PERIODIC_POLICIES[policy](topology, Random(seed)),
        [*bulk.first(), *arrivals],
        follow=bulk.next,
        losses=[Loss(lost, HORIZON_S / 4, HORIZON_S / 2)] if case.loses_node else [],
    )


def run_periodic(
    cases: Iterable[str], policies: Sequence[str], seeds: Iterable[int], on_run: Callable[[], None] = lambda: None
) -> list[PeriodicRow]:
    """Return one row per case and policy. Each seed gives all policies the same load.

    `on_run` is called after each simulation.
    """
    numbers = list(seeds)
    rows = []
    for name in cases:
        case = PERIODIC_CASES[name]
        loads = [load_of(case, seed) for seed in numbers]
        for policy in policies:
            found = []
            for seed, (made, arrivals) in zip(numbers, loads, strict=True):
                found.append(_figures(case, policy, seed, made, arrivals))
                on_run()
            figures = {key: fmean(each[key] for each in found) for key in found[0]}
            bulk = figures.pop("bulk_share")
            rows.append(
                PeriodicRow(
                    case=name,
                    policy=policy,
                    load=case.load,
                    bulk_share=bulk if case.bulk_writers else None,
                    **figures,
                )
            )
    return rows


def _figures(
    case: PeriodicCase, policy: str, seed: int, made: Sequence[Recurrence], arrivals: Sequence[Arrival]
) -> dict[str, float]:
    run, end_s = periodic_simulation(case, policy, seed, arrivals), HORIZON_S + GRACE_S
    times = run.run_until(end_s)
    of = {each.name: each for each in made}
    stretches, bounded, missed = [], [], 0
    for arrival in arrivals:
        each, size = of[arrival.write_set.name.partition("@")[0]], sum(arrival.write_set.chunks)
        # The duration alone is proportional to the bytes, because chunk sizes vary little.
        alone = alone_s(each.writer, each.size) * size / each.size
        done_s = times[arrival.write_set.name].done_s
        took_s = (done_s if done_s >= 0 else end_s) - arrival.at_s
        missed += took_s > each.period_s
        if each.write_class is WriteClass.BLOCKING:
            stretches.append(max(1.0, took_s / alone))
            bounded.append(max(1.0, max(1.0, took_s) / max(1.0, alone)))
    ordered, ordered_bounded = sorted(stretches), sorted(bounded)
    bulk_bytes = sum(size for name, size in run.written.items() if name.startswith("bulk-"))
    left = sustained_bytes_s() * end_s - (sum(run.written.values()) - bulk_bytes)
    return {
        "checkpoints": len(ordered),
        "mean": fmean(ordered),
        "median": median(ordered),
        "p99": quantile(ordered, 0.99),
        "worst": ordered[-1],
        "bounded_p99": quantile(ordered_bounded, 0.99),
        "missed": missed / len(arrivals),
        "bulk_share": bulk_bytes / left,
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
