"""A lower bound for one burst of writers that no schedule can beat, by OR-Tools' CP-SAT.

The program chooses the nodes of each chunk and the order in which chunks end. The constraints: a chunk's nodes are
distinct and exclude its writer's node; at the end of a chunk, all chunks that have ended fit the best rates of
their disks and of their racks' links; no chunk is faster than when alone. So this bound includes the placement of
whole chunks, unlike bounds on pools of disks. It imports nothing of the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model

#: Times are integers, in this many parts of a second.
_PARTS = 1000


@dataclass(frozen=True)
class Burst:
    """Sets as (writer, number of chunks), all of `chunk_mb` and submitted at once, with `replicas` of each chunk.

    `rack_of` maps all nodes. Rates are MB/s: of each disk at best and with one stream, and out of each rack.
    """

    sets: Sequence[tuple[str, int]]
    chunk_mb: float
    replicas: int
    rack_of: Mapping[str, str]
    disk_mb_s: float
    one_stream_mb_s: float
    rack_mb_s: float


def least_mean_s(burst: Burst, time_limit_s: float = 60.0) -> float:
    """Return the least mean time at which sets are done; a lower bound of it if the time limit is reached."""
    model = cp_model.CpModel()
    chunks = [(number, writer) for number, (writer, count) in enumerate(burst.sets) for _ in range(count)]
    on_disk = round(_PARTS * burst.chunk_mb / burst.disk_mb_s)
    alone = round(_PARTS * burst.chunk_mb / burst.one_stream_mb_s)
    on_link = round(_PARTS * burst.chunk_mb / burst.rack_mb_s)
    horizon = alone + on_disk * burst.replicas * len(chunks)
    ends = [model.new_int_var(alone - 1, horizon, "") for _ in chunks]
    places = []
    for _, writer in chunks:
        at = {node: model.new_bool_var("") for node in burst.rack_of if node != writer}
        model.add(sum(at.values()) == burst.replicas)
        home = [var for node, var in at.items() if burst.rack_of[node] == burst.rack_of[writer]]
        # In two racks, as the product's rule wants it.
        model.add(sum(home) >= 1)
        model.add(sum(home) <= burst.replicas - 1)
        places.append(at)
    before = {}
    for first, second in combinations(range(len(chunks)), 2):
        order = model.new_bool_var("")
        model.add(ends[first] <= ends[second]).only_enforce_if(order)
        model.add(ends[second] <= ends[first]).only_enforce_if(order.negated())
        before[first, second], before[second, first] = order, order.negated()
    for last in range(len(chunks)):
        for node in burst.rack_of:
            work = []
            for chunk, at in enumerate(places):
                if node not in at:
                    continue
                if chunk == last:
                    work.append(at[node])
                    continue
                both = model.new_bool_var("")
                model.add_bool_or(both, at[node].negated(), before[chunk, last].negated())
                work.append(both)
            model.add(ends[last] + len(work) >= on_disk * sum(work))
        rack = burst.rack_of[chunks[last][1]]
        leaving = [
            before[chunk, last]
            for chunk, (_, writer) in enumerate(chunks)
            if chunk != last and burst.rack_of[writer] == rack
        ]
        model.add(ends[last] + len(chunks) >= on_link * (sum(leaving) + 1))
    done = []
    for number in range(len(burst.sets)):
        end = model.new_int_var(0, horizon, "")
        model.add_max_equality(end, [ends[chunk] for chunk, (of, _) in enumerate(chunks) if of == number])
        done.append(end)
    model.minimize(sum(done))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = time_limit_s
    assert solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver.best_objective_bound / _PARTS / len(burst.sets)
