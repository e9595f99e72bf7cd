"""Emulate the paper's cluster, and remove everything at the end."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peacefs.topology.measured import with_measured
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import RateCurve

from . import flows
from .cluster import EmulatedCluster
from .leftovers import remove_leftovers
from .network import CannotEmulate, EmulatedNetwork, memory_directory
from .paper_cluster import RACKS, Scale, described

#: A namespace may use only congestion controls that are allowed for everyone, often only bbr and reno. Choose
#: reno, the simplest.
CONGESTION = "reno"

#: Seconds until orders begin, so that all writers have read theirs.
LEAD_S = 0.5

_MEASURE_S = 1.5
_MEASURE_LINK_S = 3.0

_CHOICES = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


@dataclass(frozen=True, slots=True)
class Emulation:
    """A running cluster, and its scale relative to the paper's."""

    cluster: EmulatedCluster
    scale: Scale

    @property
    def conditions(self) -> str:
        """Describe the conditions under which figures were measured."""
        return (
            f"{len(self.cluster.network.hosts)} datanodes at {self.scale.rates:g} of the paper's rates, chunks of "
            f"{self.scale.chunk_bytes} B; congestion control {CONGESTION}, where there may be "
            f"{' or '.join(_CHOICES.read_text().split())}"
        )

    def as_made(self) -> Topology:
        """Return the network with its configured rates of links and disks. Servers have the names of hosts."""
        return described(self.cluster.network.hosts, self.scale, lambda host: host.name)

    def measured(self) -> Topology:
        """Return the network with its measured rates."""
        network = self.cluster.network
        disk = RateCurve(tuple(self.cluster.measure_disk(_MEASURE_S).disk))
        one, other = ([host for host in network.hosts if host.rack == rack] for rack in network.racks[:2])
        between_bytes_s = flows.between(one, other, _MEASURE_LINK_S)
        topology = self.as_made()
        measured = with_measured(
            topology,
            {host.name: disk for host in network.hosts},
            {link.ends: between_bytes_s for link in topology.switch_links()},
        )
        disks = ", ".join(f"{rate / 1e6:.2f} with {streams}" for streams, rate in disk.points)
        made = ", ".join(f"{rate / 1e6:.2f} with {streams}" for streams, rate in self.scale.disk.points)
        print(f"measured: disks {disks} streams; between racks {between_bytes_s / 1e6:.2f} MB/s each way")
        print(f"made as:  disks {made} streams; every link {self.scale.link_bytes_s / 1e6:.2f} MB/s each way")
        return measured


@contextlib.contextmanager
def emulation(scale: Scale) -> Iterator[Emulation | None]:
    """Yield an emulation, or None with a printed reason if it is impossible.

    Everything is removed afterwards, also after a signal. After SIGKILL, the next emulation removes the rest.
    """
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
