"""The cluster of section 6.2 at a fraction of its rates and sizes.

Everything that takes its time, links and disks, is slower by one factor, and chunks are smaller by another; so
times shrink by their ratio, and are given back as seconds of the paper's cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peacefs.peace.simulator.scenarios import CHUNK_BYTES
from peacefs.protocol.limits import checksum_block_bytes
from peacefs.topology.model import Defaults, Link, Server, Topology
from peacefs.topology.rate_curve import MB, PAPER_DISK, RateCurve

from .network import Host

RACKS = (8, 9)
_LINK_BYTES_S = 125.0 * MB


@dataclass(frozen=True, slots=True)
class Scale:
    """Fractions of the paper's rates and of its chunks."""

    rates: float = 0.1
    chunks: float = 0.05

    @property
    def link_bytes_s(self) -> float:
        return _LINK_BYTES_S * self.rates

    @property
    def disk(self) -> RateCurve:
        return PAPER_DISK.scaled(self.rates)

    @property
    def client(self) -> RateCurve:
        """A client that is no limit: its network card is."""
        return RateCurve(((1, self.link_bytes_s),))

    @property
    def chunk_bytes(self) -> int:
        """Whole blocks."""
        return max(1, round(CHUNK_BYTES * self.chunks / checksum_block_bytes)) * checksum_block_bytes

    def chunks_of(self, mb: int) -> int:
        return mb * MB // CHUNK_BYTES

    def paper_s(self, seconds: float) -> float:
        """Seconds of the paper's cluster for seconds of this one."""
        return seconds * self.rates * CHUNK_BYTES / self.chunk_bytes

    def emulated_s(self, seconds: float) -> float:
        """Seconds of this cluster for seconds of the paper's."""
        return seconds / self.paper_s(1.0)


def described(hosts: Sequence[Host], scale: Scale, name: Callable[[Host], str]) -> Topology:
    """Both racks, one link between them. Servers are called as `name` says."""
    first, *others = dict.fromkeys(host.rack for host in hosts)
    return Topology(
        switches=(first, *others),
        servers={name(host): Server(name(host), host.rack, scale.disk) for host in hosts},
        links=(
            *(Link(other, first, scale.link_bytes_s) for other in others),
            *(Link(name(host), host.rack, scale.link_bytes_s) for host in hosts),
        ),
        root=first,
        defaults=Defaults(scale.link_bytes_s, scale.link_bytes_s, scale.disk),
    )
