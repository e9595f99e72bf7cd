"""The network of a running cluster: the answer of `/v1/topology`, made by the coordinator and read by clients.

Plain dataclasses, so that FastAPI can describe them and msgspec can decode them.
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
    """A live datanode. `disk_bytes_s` is the best rate of its disk, `slots` its capacity in incoming chunks, and
    `streams` the current number of them. `described`: whether the topology file names it.
    """

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
    """A full-duplex link: its capacity per direction, in bytes per second and in concurrent chunks, and the
    current number of chunks in each direction.
    """

    a: str
    b: str
    bytes_s: float
    cost: int
    capacity_streams: int
    streams_a_to_b: int
    streams_b_to_a: int


@dataclass(frozen=True)
class NetworkView:
    """The network of the live datanodes; `described`: whether there is a topology file.

    `stream_bytes_s` is the rate of one stream when all slots of a typical server are used. Capacities in streams
    are computed from it.
    """

    described: bool
    root: str
    stream_bytes_s: float
    switches: list[str]
    racks: list[RackView]
    servers: list[ServerView]
    links: list[LinkView]

    def topology(self) -> Topology:
        """Return the view as a Topology, in which each disk has only its best rate, at `slots` streams."""
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
