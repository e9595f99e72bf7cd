"""The network as the SGuard paper draws it (section 5, Figure 5): a directed graph of costs and capacities.

Every server has four vertices: a sending and a receiving process, and the two ends of its cable, up and down.
Every switch has one.

    send --1--> up --0--> switch --0--> down --1--> receive       and      switch --cost--> switch

Physical links cost what the topology says (1 unless it says otherwise), what is inside a switch costs 0.
A capacity is a number of chunks that may be on their way at once. A server with several network cards is
linked to several switches; its sending and receiving edges still bound all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil

from .model import Topology
from .routes import Hop


class Role(Enum):
    """The part of the network that a vertex stands for."""

    SEND = "SND"
    UP = "up"
    SWITCH = "sw"
    DOWN = "dn"
    RECEIVE = "RCV"


@dataclass(frozen=True, slots=True)
class Vertex:
    """A server's or a switch's part in the graph."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.name}:{self.role.value}"


@dataclass(frozen=True, slots=True)
class Edge:
    """`tail` and `head` are positions in `Graph.vertices`."""

    tail: int
    head: int
    cost: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Streams:
    """The capacities of a graph, in concurrent chunks.

    `send` and `receive` bound a server's two processes, 2 and 2 in the paper (section 6.2). Every other link
    carries its rate divided by `stream_bytes_s`, rounded up; `links` says otherwise for single switch links.
    """

    stream_bytes_s: float
    send: int = 2
    receive: int = 2
    receive_of: Mapping[str, int] | None = None
    links: Mapping[Hop, int] | None = None

    def received_by(self, server: str) -> int:
        """The number of chunks that a server receives at once."""
        return self.receive if self.receive_of is None else self.receive_of.get(server, self.receive)

    def carried(self, tail: str, head: str, bytes_s: float) -> int:
        """The number of chunks that a link of this rate carries at once in this direction; at least one."""
        if self.links is not None and (tail, head) in self.links:
            return self.links[tail, head]
        return max(1, ceil(bytes_s / self.stream_bytes_s))


class Graph:
    """Vertices, edges, and which edges leave a vertex. Never changes: what is residual is kept by whoever
    uses it, as a list of capacities in the order of `edges`."""

    def __init__(self, topology: Topology, streams: Streams) -> None:
        self.topology = topology
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.position: dict[Vertex, int] = {}
        self.leaving: list[list[int]] = []
        for switch in topology.switches:
            self._add_vertex(Vertex(Role.SWITCH, switch))
        for link in topology.switch_links():
            for tail, head in ((link.a, link.b), (link.b, link.a)):
                capacity = streams.carried(tail, head, link.bytes_s)
                self._add_edge(Vertex(Role.SWITCH, tail), Vertex(Role.SWITCH, head), link.cost, capacity)
        for server in sorted(topology.servers):
            self._add_server(server, streams)

    def _add_server(self, name: str, streams: Streams) -> None:
        send, up, down, receive = (
            self._add_vertex(Vertex(role, name)) for role in (Role.SEND, Role.UP, Role.DOWN, Role.RECEIVE)
        )
        links = self.topology.server_links(name)
        self._add_edge(send, up, links[0].cost, streams.send)
        self._add_edge(down, receive, links[0].cost, streams.received_by(name))
        for link in links:
            switch = Vertex(Role.SWITCH, link.b)
            capacity = streams.carried(link.a, link.b, link.bytes_s)
            self._add_edge(up, switch, 0, capacity)
            self._add_edge(switch, down, 0, capacity)

    def _add_vertex(self, vertex: Vertex) -> Vertex:
        self.position[vertex] = len(self.vertices)
        self.vertices.append(vertex)
        self.leaving.append([])
        return vertex

    def _add_edge(self, tail: Vertex, head: Vertex, cost: int, capacity: int) -> None:
        edge = Edge(self.position[tail], self.position[head], cost, capacity)
        self.leaving[edge.tail].append(len(self.edges))
        self.edges.append(edge)

    def capacities(self) -> list[int]:
        """A fresh residual: every edge's whole capacity."""
        return [edge.capacity for edge in self.edges]
