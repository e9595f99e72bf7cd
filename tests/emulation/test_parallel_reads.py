"""A large read gets the rate of several datanodes' links, not only of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
_LINK_BYTES_S = 8e6
_FILE_BYTES = 48_000_000
#: Run on a host without a datanode, with a second link to each datanode.
_READER = """
import sys, time
from peacefs.client.filesystem import PeaceFileSystem
with PeaceFileSystem(sys.argv[1]) as files:
    size = int(sys.argv[2])
    files.write("/large", bytes(size))
    with files.open("/large") as source:
        for read in (lambda: source.read_at(0, size), lambda: b"".join(iter(lambda: source.read(1 << 20), b""))):
            begun = time.monotonic()
            assert len(read()) == size
            print(size / (time.monotonic() - begun))
"""


@pytest.mark.long("needs a quiet machine")
def test_large_read_brings_what_the_links_of_several_datanodes_carry() -> None:
    scale = Scale(rates=0.2)
    try:
        with EmulatedNetwork((3,), 25 * MB, 25 * MB, CONGESTION) as network:
            told = described(network.hosts, scale, lambda host: host.address)
            for host in network.hosts:
                rate = f"{round(_LINK_BYTES_S * 8)}bit"
                shaping = ["tbf", "rate", rate, "burst", "128kb", "latency", "200ms"]
                command = ["tc", "-n", host.namespace, "qdisc", "add", "dev", "control", "root", *shaping]
                subprocess.run(command, check=True)
            with EmulatedCluster(network, _FAST_DISK, told) as cluster:
                command = [*network.coordinator.inside(), sys.executable, "-c", _READER]
                ran = subprocess.run(
                    [*command, cluster.address, str(_FILE_BYTES)],
                    cwd=Path(__file__).parents[2],
                    capture_output=True,
                    text=True,
                    check=True,
                )
    except CannotEmulate as reason:
        pytest.skip(str(reason))
    rates = [float(line) / _LINK_BYTES_S for line in ran.stdout.split()]
    print("links' worth, whole and on and on:", [f"{rate:.2f}" for rate in rates])
    assert min(rates) > 1.6, rates
