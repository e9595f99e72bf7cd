"""A lower bound on the mean time of a burst by a linear program: the time-indexed relaxation (OR-Tools).

Time is cut into slots. The program chooses how many bytes of each set are written in each slot, within the rates
of the pool of all disks, of the links out of each rack, and of each set alone. It minimizes the sum over sets of
the mean time at which a set's bytes are written. A set is done at the earliest half of its duration alone after
that mean time: exactly then if it is written at its own highest rate, otherwise later. So (mean time + half of the
duration alone) bounds each completion from below. Bytes count as written at the beginning of their slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ortools.linear_solver import pywraplp

from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_CLIENT, RateCurve

from .bounds import alone_s, bounds
from .simulate import Arrival


def linear_mean_s(
    topology: Topology, arrivals: Sequence[Arrival], client: RateCurve = PAPER_CLIENT, slot_s: float = 0.25
) -> float:
    """Return a lower bound on the mean time from request to done."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    # All bytes are written by twice the pooled bound of the makespan. A later end would not lower the value.
    slots = ceil(2 * bounds(topology, arrivals, client).makespan_s / slot_s) + 1
    disks = sum(
        min(server.disk.best_rate, topology.network_bytes_s(server.name)) for server in topology.servers.values()
    )
    on_disks = [solver.Constraint(-solver.infinity(), disks * slot_s) for _ in range(slots)]
    out_of = {
        rack: [
            solver.Constraint(
                -solver.infinity(),
                slot_s * sum(link.bytes_s for link in topology.switch_links() if rack in link.ends),
            )
            for _ in range(slots)
        ]
        for rack in (topology.racks if len(topology.racks) > 1 else ())
    }
    objective, constant = solver.Objective(), 0.0
    for arrival in arrivals:
        write_set = arrival.write_set
        size, alone = sum(write_set.chunks), alone_s(topology, write_set, client)
        whole = solver.Constraint(size, size)
        rack = topology.servers[write_set.writer].rack if write_set.writer is not None else None
        for slot in range(int(arrival.at_s / slot_s), slots):
            written = solver.NumVar(0.0, size * slot_s / alone, "")
            whole.SetCoefficient(written, 1.0)
            on_disks[slot].SetCoefficient(written, float(write_set.replication))
            if rack in out_of and write_set.replication > 1:
                out_of[rack][slot].SetCoefficient(written, 1.0)
            objective.SetCoefficient(written, slot * slot_s / size)
        constant += alone / 2 - arrival.at_s
    objective.SetMinimization()
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        raise AssertionError("the linear program of a burst has a solution")
    return float(objective.Value() + constant) / len(arrivals)
