"""Compares policies on the same clusters and loads, by three times and their lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.paper import PaperPolicy
from peacefs.peace.policies.random import RandomPolicy
from peacefs.peace.policies.timely import TimelyPolicy
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
    """Means over all seeds, in seconds.

    `from_request_s` (request to done) and `span_s` (first grant to done) are also means over sets. The makespan
    ends with the last set. Bounds are from `bounds.WaitingBounds`.
    """

    policy: str
    writers: int
    mb: int
    from_request_s: float
    span_s: float
    makespan_s: float
    bound_mean_s: float
    bound_makespan_s: float


def paper_policy(inter_rack_chunks: int | None = None) -> MakePolicy:
    """Return a function that makes the paper's policy, Algorithm 1.

    The paper does not state the capacity of the link between its racks. If `inter_rack_chunks` is None, capacities
    of switch links are derived from their rates.
    """

    def make(topology: Topology, rng: Random) -> Policy:
        calibration = calibrate(topology)
        links = None
        if inter_rack_chunks is not None:
            links = dict.fromkeys(calibration.link_streams, inter_rack_chunks)
        return PaperPolicy(topology, Streams(calibration.stream_bytes_s, links=links), rng)

    return make


def flow_policy(topology: Topology, rng: Random) -> Policy:
    """Return the paper's policy with timesteps planned by minimum cost flows.

    Raises Unsupported without OR-Tools.
    """
    try:
        # Imported here because OR-Tools is optional and takes most of a second to import.
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
    "timely": TimelyPolicy,
}

#: "paper-3" and "paper-5" are two interpretations of the paper's own cluster and are not used for others.
USUAL_POLICIES = ("random", "paper", "express")
FIGURE10_POLICIES = ("random", "paper-3", "paper-5", "express")


def usual_policies(scenario: str) -> tuple[str, ...]:
    return FIGURE10_POLICIES if scenario == "figure10" else USUAL_POLICIES


def run_scenario(
    name: str,
    seeds: Iterable[int],
    policies: Sequence[str] | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Return one row per case of the scenario and policy. Each seed gives all policies the same load.

    `on_run` is called after each simulation: once per case, policy and seed.
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
