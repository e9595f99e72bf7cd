"""The cluster of section 6.2, scaled down in rates and sizes.

Links and disks are slower by one factor, and chunks are smaller by another. So times shrink by the ratio of the
two, and results are converted back to seconds of the paper's cluster.
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
    """Factors for the paper's rates and chunk sizes."""

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
        """Return a client that is limited only by its network card."""
        return RateCurve(((1, self.link_bytes_s),))

    @property
    def chunk_bytes(self) -> int:
        """Return the scaled chunk size, in whole blocks."""
        return max(1, round(CHUNK_BYTES * self.chunks / checksum_block_bytes)) * checksum_block_bytes

    def chunks_of(self, mb: int) -> int:
        return mb * MB // CHUNK_BYTES

    def paper_s(self, seconds: float) -> float:
        """Convert seconds of this cluster to seconds of the paper's."""
        return seconds * self.rates * CHUNK_BYTES / self.chunk_bytes

    def emulated_s(self, seconds: float) -> float:
        """Convert seconds of the paper's cluster to seconds of this one."""
        return seconds / self.paper_s(1.0)


def described(hosts: Sequence[Host], scale: Scale, name: Callable[[Host], str]) -> Topology:
    """Return both racks and the link between them. `name` gives the servers' names."""
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
