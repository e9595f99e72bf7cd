"""The network as the coordinator shows it at `/v1/topology`, as a topology and the load on its links."""

from __future__ import annotations

import msgspec

from peacefs.topology.link_load import LinkLoad, Loads
from peacefs.topology.model import Link, Server, Topology
from peacefs.topology.rate_curve import RateCurve


class RackView(msgspec.Struct, frozen=True):
    """A rack and its servers, by name."""

    rack: str
    servers: list[str]


class ServerView(msgspec.Struct, frozen=True):
    """An alive datanode: `slots` incoming chunks make the most of it, `streams` are on their way to it."""

    server: str
    host: str
    data_port: int
    rack: str
    described: bool
    network_bytes_s: float
    disk_bytes_s: float
    slots: int
    streams: int


class LinkView(msgspec.Struct, frozen=True):
    """A cable, with its capacity and load in concurrent chunks."""

    a: str
    b: str
    bytes_s: float
    cost: int
    capacity_streams: int
    streams_a_to_b: int
    streams_b_to_a: int


class NetworkView(msgspec.Struct, frozen=True):
    """Racks, servers and links of the datanodes that are alive. `described`: there is a topology file."""

    described: bool
    root: str
    switches: list[str]
    racks: list[RackView]
    servers: list[ServerView]
    links: list[LinkView]

    def topology(self) -> Topology:
        """Of disks only the best rate is known, at as many streams as the server has slots."""
        return Topology(
            switches=tuple(self.switches),
            servers={
                each.server: Server(each.server, each.rack, RateCurve(((max(1, each.slots), each.disk_bytes_s),)))
                for each in self.servers
            },
            links=tuple(Link(each.a, each.b, each.bytes_s, each.cost) for each in self.links),
            root=self.root,
        )

    def loads(self) -> Loads:
        return {
            frozenset((each.a, each.b)): LinkLoad(
                each.a, each.streams_a_to_b, each.streams_b_to_a, each.capacity_streams
            )
            for each in self.links
        }
