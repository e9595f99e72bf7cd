"""No policy beats the exact bound of a small burst, and `express` is close to it."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from support.long_runs import often

pytest.importorskip("ortools")

from oracles.burst_optimum import Burst, least_mean_s

from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.simulator.bounds import bounds
from peacefs.peace.simulator.linear_bound import linear_mean_s
from peacefs.peace.simulator.periodic import PERIODIC_POLICIES
from peacefs.peace.simulator.scenarios import star
from peacefs.peace.simulator.simulate import Arrival, simulate
from peacefs.topology.rate_curve import MB

CHUNK_MB = 64


@pytest.mark.parametrize("seed", range(often(3, 24)))
def test_no_policy_beats_the_optimum_and_express_is_near_it(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    topology = star(2, 3, 1.0)
    sets = [(writer, rng.randint(1, 2)) for writer in rng.sample(sorted(topology.servers), rng.randint(2, 4))]
    burst = Burst(
        sets, CHUNK_MB, 3, {name: server.rack for name, server in topology.servers.items()}, 45.0, 30.0, 3 * 125.0
    )
    least_s = least_mean_s(burst, often(10, 120))
    arrivals = [
        Arrival(0.0, WriteSet(f"s{number}", writer, 3, (CHUNK_MB * MB,) * count))
        for number, (writer, count) in enumerate(sets)
    ]
    pooled_s = bounds(topology, arrivals).mean_s
    means = {}
    for name, make in PERIODIC_POLICIES.items():
        times = simulate(topology, make(topology, Random(seed)), arrivals)
        means[name] = fmean(each.from_request_s for each in times.values())
        assert means[name] >= least_s * (1 - 1e-2), name
    print(f"pooled bound {pooled_s:.2f}, exact {least_s:.2f}, {means}")
    assert means["express"] <= 1.4 * max(least_s, pooled_s)


def test_the_linear_bound_of_one_set_is_its_time_alone() -> None:
    """A chunk of 64 MB at 30 MB/s, up to the length of a slot."""
    arrivals = [Arrival(0.0, WriteSet("s", "n00-00", 3, (CHUNK_MB * MB,)))]
    assert 64 / 30 - 0.25 <= linear_mean_s(star(2, 3, 1.0), arrivals) <= 64 / 30


@pytest.mark.parametrize("seed", range(often(2, 20)))
def test_no_policy_beats_the_linear_bound(seed: int) -> None:
    print(f"seed {seed}")
    rng, topology = Random(seed), star(2, 4, 2.0)
    arrivals = [
        Arrival(0.0, WriteSet(f"s{n}", writer, 3, (CHUNK_MB * MB,) * rng.randint(1, 5)))
        for n, writer in enumerate(rng.sample(sorted(topology.servers), 6))
    ]
    least_s = linear_mean_s(topology, arrivals)
    for name, make in PERIODIC_POLICIES.items():
        times = simulate(topology, make(topology, Random(seed)), arrivals)
        assert fmean(each.from_request_s for each in times.values()) >= least_s, name
