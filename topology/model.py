"""The network as a value: switches, servers, the links between them.

A rack is a switch that servers are attached to; rack and switch names are the same strings ("/rack-1"). A
topology never changes: a node that comes, goes or moves gives a new one, so that a plan can hold on to the
network it was made for. Rates are bytes a second in each direction (links are full duplex); a link's cost is
what a shortest path adds up.
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
        """The end that is not this one, which must be one of the two."""
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
    """The assumptions about links and disks that nobody described: gigabit Ethernet and the paper's disks."""

    server_link_bytes_s: float = 125.0 * MB
    switch_link_bytes_s: float = 125.0 * MB
    disk: RateCurve = PAPER_DISK


@dataclass(frozen=True)
class Topology:
    """Switches, servers and links. Invariants: names are unique, every link ends at something that exists,
    every server is linked to its rack, and all is one piece.

    `root` is the switch below which racks grow that nobody described.
    """

    switches: tuple[str, ...] = (ROOT,)
    servers: Mapping[str, Server] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    root: str = ROOT
    defaults: Defaults = Defaults()

    # -- questions -------------------------------------------------------------------------------

    @cached_property
    def links_at(self) -> Mapping[str, tuple[Link, ...]]:
        """The links of every switch and server, in the order they were described."""
        found: dict[str, list[Link]] = {name: [] for name in (*self.switches, *self.servers)}
        for link in self.links:
            found[link.a].append(link)
            found[link.b].append(link)
        return {name: tuple(links) for name, links in found.items()}

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """The servers of every rack that has any, in order of names."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.servers):
            found.setdefault(self.servers[name].rack, []).append(name)
        return {rack: tuple(found[rack]) for rack in sorted(found)}

    @cached_property
    def is_tree(self) -> bool:
        """Return whether one path at most joins any two: the whole is connected, so counting links will do."""
        return len(self.links) == len(self.switches) + len(self.servers) - 1

    def switch_links(self) -> Iterator[Link]:
        """The links between switches."""
        return (link for link in self.links if link.a not in self.servers)

    def server_links(self, name: str) -> tuple[Link, ...]:
        """A server's links, that to its rack first; more than one where it has several network cards."""
        rack = self.servers[name].rack
        return tuple(sorted(self.links_at[name], key=lambda link: link.other(name) != rack))

    def network_bytes_s(self, name: str) -> float:
        """The bytes a second that a server's network cards carry together, each way."""
        return sum(link.bytes_s for link in self.links_at[name])

    # -- changes ---------------------------------------------------------------------------------

    def with_server(
        self, name: str, rack: str, *, disk: RateCurve | None = None, bytes_s: float | None = None
    ) -> Topology:
        """A server came, or moved to another rack. A rack nobody described grows along its path.

        Raises InvalidTopology for a server and a switch of one name.
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
        """A server went. Its rack stays, even when empty."""
        if name not in self.servers:
            return self
        return replace(
            self,
            servers={known: server for known, server in self.servers.items() if known != name},
            links=tuple(link for link in self.links if link.a != name),
        )

    def with_switch(self, name: str) -> Topology:
        """A rack nobody described grows below the deepest rack of its path that is known, else below `root`."""
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
