"""The network as a value: switches, servers, the links between them.

A rack is a switch with servers; rack names are switch names ("/rack-1"). Topologies are immutable: adding,
removing or moving a node returns a new one, so a plan can keep the topology that it was made for. Rates are bytes
per second in each direction (links are full duplex). Shortest paths add up the costs of links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from peacefs.protocol.errors import InvalidTopology

from .rate_curve import MB, PAPER_DISK, RateCurve

ROOT = "/"


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two switches, or between a server (`a`) and its switch (`b`)."""

    a: str
    b: str
    bytes_s: float
    cost: int = 1

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.a, self.b))

    def other(self, end: str) -> str:
        """Return the opposite end; `end` must be an end of this link."""
        assert end in (self.a, self.b)
        return self.b if end == self.a else self.a


@dataclass(frozen=True, slots=True)
class Server:
    """A machine that stores replicas. Its first switch is its rack."""

    name: str
    rack: str
    disk: RateCurve = PAPER_DISK


@dataclass(frozen=True, slots=True)
class Defaults:
    """Rates of links and disks that were not described: gigabit Ethernet and the paper's disks."""

    server_link_bytes_s: float = 125.0 * MB
    switch_link_bytes_s: float = 125.0 * MB
    disk: RateCurve = PAPER_DISK


@dataclass(frozen=True)
class Topology:
    """Switches, servers and links, used by placement policies, the simulator and drawings.

    Invariants: names are unique, links connect existing switches and servers, every server is linked to its rack,
    and the network is connected. Racks that were not described are added below the switch `root`.
    """

    switches: tuple[str, ...] = (ROOT,)
    servers: Mapping[str, Server] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    root: str = ROOT
    defaults: Defaults = Defaults()

    # -- questions -------------------------------------------------------------------------------

    @cached_property
    def links_at(self) -> Mapping[str, tuple[Link, ...]]:
        """The links of every switch and server, in the order in which they were described."""
        found: dict[str, list[Link]] = {name: [] for name in (*self.switches, *self.servers)}
        for link in self.links:
            found[link.a].append(link)
            found[link.b].append(link)
        return {name: tuple(links) for name, links in found.items()}

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """The servers of every non-empty rack, sorted by name."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.servers):
            found.setdefault(self.servers[name].rack, []).append(name)
        return {rack: tuple(found[rack]) for rack in sorted(found)}

    @cached_property
    def is_tree(self) -> bool:
        """True if the network has no cycles. It is connected, so counting links is enough."""
        return len(self.links) == len(self.switches) + len(self.servers) - 1

    def switch_links(self) -> Iterator[Link]:
        return (link for link in self.links if link.a not in self.servers)

    def server_links(self, name: str) -> tuple[Link, ...]:
        """Return a server's links, the one to its rack first. A server has one link per network card."""
        rack = self.servers[name].rack
        return tuple(sorted(self.links_at[name], key=lambda link: link.other(name) != rack))

    def network_bytes_s(self, name: str) -> float:
        """Return the total rate of a server's network cards, in bytes per second and direction."""
        return sum(link.bytes_s for link in self.links_at[name])

    # -- changes ---------------------------------------------------------------------------------

    def with_server(
        self, name: str, rack: str, *, disk: RateCurve | None = None, bytes_s: float | None = None
    ) -> Topology:
        """Return a topology with this server added, or moved to this rack. Missing racks are added.

        Raises InvalidTopology if a switch has the same name.
        """
        known = self.servers.get(name)
        if known is not None and known.rack == rack and disk is None and bytes_s is None:
            return self
        disk = disk or (known.disk if known else self.defaults.disk)
        rate = bytes_s or (self.server_links(name)[0].bytes_s if known else self.defaults.server_link_bytes_s)
        grown = self.without_server(name).with_switch(rack)
        if name in grown.switches:
            raise InvalidTopology(f"{name} is a switch and cannot be a server too")
        return replace(
            grown,
            servers={**grown.servers, name: Server(name, rack, disk)},
            links=(*grown.links, Link(name, rack, rate)),
        )

    def without_server(self, name: str) -> Topology:
        """Return a topology without this server. Its rack stays, even if it is empty."""
        if name not in self.servers:
            return self
        return replace(
            self,
            servers={known: server for known, server in self.servers.items() if known != name},
            links=tuple(link for link in self.links if link.a != name),
        )

    def with_switch(self, name: str) -> Topology:
        """Return a topology with this rack, and the missing racks of its path, added below `root`.

        Raises InvalidTopology if a server has the same name.
        """
        if name in self.switches:
            return self
        if name in self.servers:
            raise InvalidTopology(f"{name} is a server and cannot be a rack too")
        above = name.rpartition("/")[0]
        parent = above or self.root
        grown = self.with_switch(parent)
        uplink = Link(name, parent, self.defaults.switch_link_bytes_s)
        return replace(grown, switches=(*grown.switches, name), links=(*grown.links, uplink))

    def __post_init__(self) -> None:
        names = Counter((*self.switches, *self.servers))
        assert all(count == 1 for count in names.values()), "names are unique"
        assert self.root in self.switches, "the root is a switch"
