"""How far `express` is from the lower bounds of one burst, in the six cells of Figure 10.

The pooled bounds are those of `peacefs simulate figure10`. The linear program is a time-indexed relaxation. The
larger of both bounds the mean. Needs OR-Tools.

    python -m benchmarks burst_bounds
"""

from __future__ import annotations

from random import Random
from statistics import fmean

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.simulator.bounds import bounds
from peacefs.peace.simulator.linear_bound import linear_mean_s
from peacefs.peace.simulator.scenarios import SCENARIOS
from peacefs.peace.simulator.simulate import simulate

from .report import show


def main(*, quick: bool = False) -> None:
    rows = []
    for case in SCENARIOS["figure10"]():
        figures = []
        for seed in range(1 if quick else 5):
            rng = Random(seed)
            topology = case.network(rng)
            arrivals = case.load(topology, rng)
            times = simulate(
                topology, ExpressPolicy(topology, Random(seed)), arrivals, client=case.client
            ).values()
            pooled, linear = (
                bounds(topology, arrivals, case.client),
                linear_mean_s(topology, arrivals, case.client),
            )
            mean_s, last_s = fmean(each.from_request_s for each in times), max(each.done_s for each in times)
            figures.append(
                (mean_s, pooled.mean_s, linear, mean_s / max(pooled.mean_s, linear), last_s / pooled.makespan_s)
            )
        mean_s, pooled_s, linear_s, mean_ratio, makespan_ratio = map(fmean, zip(*figures, strict=True))
        rows.append(
            {
                "writers x MB": f"{case.writers} x {case.mb}",
                "express mean, s": mean_s,
                "pooled bound": pooled_s,
                "linear bound": linear_s,
                "mean / larger bound": mean_ratio,
                "makespan / bound": makespan_ratio,
            }
        )
    show("burst_bounds", "Means over seeds, seconds of the paper's cluster", rows)
