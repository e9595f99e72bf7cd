"""`calibrate` finds a link's rate even in a short run, in which filling pipelines takes part of the time."""

from __future__ import annotations

import os
import shutil

import pytest

from benchmarks.emulation.cluster import EmulatedCluster
from benchmarks.emulation.emulation import CONGESTION
from benchmarks.emulation.network import CannotEmulate, EmulatedNetwork
from benchmarks.emulation.paper_cluster import Scale, described
from peacefs.topology.rate_curve import MB, RateCurve

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")),
        reason="network namespaces need root and iproute2",
    ),
]

_FAST_DISK = RateCurve(((1, 200.0 * MB),))


@pytest.mark.long("needs a quiet machine")
def test_a_run_of_a_second_and_a_half_finds_what_a_link_carries() -> None:
    scale = Scale(rates=0.04)
    try:
        with EmulatedNetwork((3, 3), 8 * scale.link_bytes_s, scale.link_bytes_s, CONGESTION) as network:
            told = described(network.hosts, scale, lambda host: host.address)
            with EmulatedCluster(network, _FAST_DISK, told) as cluster:
                cluster.start_writers(network.hosts[:1])
                found = max(cluster.measure_link(1.5) for _ in range(3)) / scale.link_bytes_s
    except CannotEmulate as reason:
        pytest.skip(str(reason))
    print(f"{found:.3f} of what the link is made for")
    assert 0.92 < found < 1.02
