"""The resources that a chunk in flight uses, for the simulation (`simulate`)."""

from __future__ import annotations

from peacefs.peace.policies.ledger import Grant
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import RateCurve
from peacefs.topology.routes import Hop, Routes

Resource = tuple[str, ...]


class FluidNetwork:
    """Clients, network cards, switch links and disks, numbered in the order of their first use.

    Cards and links are full duplex, with a rate that does not depend on the number of flows. The rates of disks
    and clients follow their curves.
    """

    def __init__(self, topology: Topology, client: RateCurve) -> None:
        self._topology = topology
        self._routes = Routes(topology)
        self._client = client
        self._links: dict[Hop, float] = {}
        for link in topology.switch_links():
            self._links[link.a, link.b] = self._links[link.b, link.a] = link.bytes_s
        self._number: dict[Resource, int] = {}
        self._steady: list[float | None] = []
        self._curves: list[RateCurve | None] = []

    def capacity(self, resource: int, flows: int) -> float:
        """Return the total bytes per second of a resource that `flows` flows use."""
        steady = self._steady[resource]
        if steady is not None:
            return steady
        curve = self._curves[resource]
        assert curve is not None
        return curve.rate(flows)

    def resources(self, grant: Grant) -> list[int]:
        """Return the resources that the chunk of a grant uses, from its writer to its last replica."""
        used: list[int] = []
        sender = grant.writer
        if sender is not None:
            used.append(self._resource(("client", sender), curve=self._client))
        for receiver in grant.chain:
            if sender is not None and sender != receiver:
                used += self._way(sender, receiver, grant.number)
            disk = self._topology.servers[receiver].disk
            used.append(self._resource(("disk", receiver), curve=disk))
            sender = receiver
        return used

    def _way(self, sender: str, receiver: str, flow: int) -> list[int]:
        """Choose one of the cheapest routes by the flow's number, like a network that hashes port numbers."""
        servers = self._topology.servers
        ways = self._routes.between_racks(servers[sender].rack, servers[receiver].rack)
        hops = ways[flow % len(ways)]
        return [
            self._resource(("out", sender), steady=self._topology.network_bytes_s(sender)),
            *(self._resource(("link", *hop), steady=self._links[hop]) for hop in hops),
            self._resource(("in", receiver), steady=self._topology.network_bytes_s(receiver)),
        ]

    def _resource(self, name: Resource, *, steady: float | None = None, curve: RateCurve | None = None) -> int:
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self._steady)
            self._steady.append(steady)
            self._curves.append(curve)
        return number
