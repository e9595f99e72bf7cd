"""The network of a running cluster as `/v1/topology` tells it: the coordinator fills it in, clients read it.

Plain dataclasses, which FastAPI describes and msgspec decodes: what is told is said here once.
"""

from __future__ import annotations

from dataclasses import dataclass

from .link_load import LinkLoad, Loads
from .model import Link, Server, Topology
from .rate_curve import RateCurve


@dataclass(frozen=True)
class RackView:
    """A rack and its servers, by name."""

    rack: str
    servers: list[str]


@dataclass(frozen=True)
class ServerView:
    """An alive datanode: its network card, its disk at its best, how many incoming chunks that takes, and how
    many are on their way to it now. `described`: whether the topology file names it."""

    server: str
    host: str
    data_port: int
    rack: str
    described: bool
    network_bytes_s: float
    disk_bytes_s: float
    slots: int
    streams: int


@dataclass(frozen=True)
class LinkView:
    """A cable, full duplex: what it carries each way, in bytes a second and in concurrent chunks, and how many
    chunks are on their way over it now."""

    a: str
    b: str
    bytes_s: float
    cost: int
    capacity_streams: int
    streams_a_to_b: int
    streams_b_to_a: int


@dataclass(frozen=True)
class NetworkView:
    """The network of the datanodes that are alive; `described`: there is a topology file.

    One stream's rate is what a typical server gives to each when all its slots are taken; capacities in streams
    follow from it.
    """

    described: bool
    root: str
    stream_bytes_s: float
    switches: list[str]
    racks: list[RackView]
    servers: list[ServerView]
    links: list[LinkView]

    def topology(self) -> Topology:
        """Return it as a topology. Of a disk it has the best rate alone, at as many streams as slots."""
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
