"""The paper's cluster, emulated from its start to the removal of all that it was."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from peacefs.topology.measured import with_measured
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import RateCurve

from .cluster import EmulatedCluster
from .leftovers import remove_leftovers
from .network import CannotEmulate, EmulatedNetwork, memory_directory
from .paper_cluster import RACKS, Scale, described

#: Of bbr and reno, which are what a namespace may choose here and there, the one without a mind of its own.
CONGESTION = "reno"

#: Seconds for all writers to have read their orders before the moment at which they are to begin.
LEAD_S = 0.5

_MEASURE_S = 1.5


@dataclass(frozen=True, slots=True)
class Emulation:
    """A running cluster, and at what fraction of the paper's."""

    cluster: EmulatedCluster
    scale: Scale

    def measured(self) -> Topology:
        """The network with the rates that were measured in it just now; servers are called as hosts are."""
        network = self.cluster.network
        found = self.cluster.measure(_MEASURE_S)
        disk = RateCurve(tuple(found.disk))
        topology = described(network.hosts, self.scale, lambda host: host.name)
        measured = with_measured(
            topology,
            {host.name: disk for host in network.hosts},
            {link.ends: found.link_bytes_s for link in topology.switch_links()},
        )
        told = ", ".join(f"{rate / 1e6:.2f} with {streams}" for streams, rate in found.disk)
        print(f"measured: disks {told} MB/s; between racks {found.link_bytes_s / 1e6:.2f} MB/s")
        return measured


@contextlib.contextmanager
def emulation(scale: Scale) -> Iterator[Emulation | None]:
    """None, with a word why, where there can be none. All is gone afterwards, also when a signal ends the
    benchmark; what SIGKILL leaves, the next one removes."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        with contextlib.ExitStack() as stack:
            try:
                remove_leftovers(memory_directory())
                network = stack.enter_context(
                    EmulatedNetwork(RACKS, scale.link_bytes_s, scale.link_bytes_s, CONGESTION)
                )
            except CannotEmulate as reason:
                print(f"left out: {reason}")
                yield None
                return
            told = described(network.hosts, scale, lambda host: host.address)
            cluster = stack.enter_context(EmulatedCluster(network, scale.disk, told))
            cluster.start_writers(network.hosts)
            yield Emulation(cluster, scale)
    finally:
        signal.signal(signal.SIGTERM, before)
