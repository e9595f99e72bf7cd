"""Policies side by side: the same clusters and loads, the three times that matter, and the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.paper import PaperPolicy
from peacefs.peace.policies.random import RandomPolicy
from peacefs.protocol.errors import Unsupported
from peacefs.topology.calibration import calibrate
from peacefs.topology.graph import Streams
from peacefs.topology.model import Topology

from .bounds import bounds
from .scenarios import SCENARIOS, Case
from .simulate import simulate

MakePolicy = Callable[[Topology, Random], Policy]


@dataclass(frozen=True, slots=True)
class Row:
    """Means over all seeds, in seconds. `from_request_s` and `span_s` are means over sets as well: asked for
    to done, first granted to done. The makespan ends with the last set; bounds are `bounds.WaitingBounds`."""

    policy: str
    writers: int
    mb: int
    from_request_s: float
    span_s: float
    makespan_s: float
    bound_mean_s: float
    bound_makespan_s: float


def paper_policy(inter_rack_chunks: int | None = None) -> MakePolicy:
    """Algorithm 1. The paper does not print the capacity of the link between its racks; None derives all
    capacities of switch links from their rates."""

    def make(topology: Topology, rng: Random) -> Policy:
        calibration = calibrate(topology)
        links = None
        if inter_rack_chunks is not None:
            links = dict.fromkeys(calibration.link_streams, inter_rack_chunks)
        return PaperPolicy(topology, Streams(calibration.stream_bytes_s, links=links), rng)

    return make


def flow_policy(topology: Topology, rng: Random) -> Policy:
    """Timesteps like the paper's, planned by minimum cost flows. Raises Unsupported without OR-Tools."""
    try:
        # Late: OR-Tools is an extra, and takes most of a second to import.
        from peacefs.peace.policies.flow import FlowScheduler
    except ImportError:
        raise Unsupported("the policy flow needs OR-Tools: install peacefs[flow]") from None
    streams = Streams(calibrate(topology).stream_bytes_s)
    return PaperPolicy(topology, streams, rng, schedule=FlowScheduler())


POLICIES: dict[str, MakePolicy] = {
    "random": RandomPolicy,
    "paper": paper_policy(),
    "paper-3": paper_policy(3),
    "paper-5": paper_policy(5),
    "flow": flow_policy,
    "express": ExpressPolicy,
}

#: Capacities 3 and 5 are two readings of the paper's own cluster and mean nothing elsewhere.
USUAL_POLICIES = ("random", "paper", "express")
FIGURE10_POLICIES = ("random", "paper-3", "paper-5", "express")


def usual_policies(scenario: str) -> tuple[str, ...]:
    """The policies that a scenario is run under unless others are named."""
    return FIGURE10_POLICIES if scenario == "figure10" else USUAL_POLICIES


def run_scenario(
    name: str,
    seeds: Iterable[int],
    policies: Sequence[str] | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> list[Row]:
    """One row for each case of the scenario and each policy; the load of a seed is the same for all.

    `on_run` hears of every cluster simulated to its end: one for each case, policy and seed.
    """
    chosen, numbers = policies or usual_policies(name), list(seeds)
    return [_row(case, policy, numbers, on_run) for case in SCENARIOS[name]() for policy in chosen]


def _row(case: Case, policy: str, seeds: Sequence[int], on_run: Callable[[], None]) -> Row:
    outcomes = []
    for seed in seeds:
        outcomes.append(_outcome(case, POLICIES[policy], seed))
        on_run()
    means = (fmean(values) for values in zip(*outcomes, strict=True))
    return Row(policy, case.writers, case.mb, *means)


def _outcome(case: Case, make_policy: MakePolicy, seed: int) -> tuple[float, float, float, float, float]:
    rng = Random(seed)
    topology = case.network(rng)
    arrivals = case.load(topology, rng)
    times = simulate(topology, make_policy(topology, Random(seed)), arrivals, client=case.client).values()
    least = bounds(topology, arrivals, case.client)
    return (
        fmean(each.from_request_s for each in times),
        fmean(each.span_s for each in times),
        max(each.done_s for each in times),
        least.mean_s,
        least.makespan_s,
    )
