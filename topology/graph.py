"""The network as a directed graph with costs and capacities, as in the SGuard paper (section 5, Figure 5).

Every server has four vertices: a sending and a receiving process, and the two ends of its cable, up and down.
Every switch has one.

    send --1--> up --0--> switch --0--> down --1--> receive       and      switch --cost--> switch

Physical links have the topology's cost (default 1); edges inside a switch cost 0. A capacity is a number of
concurrent chunks. A server with several network cards is linked to several switches; its sending and receiving
edges limit all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil

from .model import Topology
from .routes import Hop


class Role(Enum):
    """The part of a server or switch that a vertex represents."""

    SEND = "SND"
    UP = "up"
    SWITCH = "sw"
    DOWN = "dn"
    RECEIVE = "RCV"


@dataclass(frozen=True, slots=True)
class Vertex:
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.name}:{self.role.value}"


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge; `tail` and `head` are positions in `Graph.vertices`."""

    tail: int
    head: int
    cost: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Streams:
    """The capacities of a graph, in concurrent chunks.

    `send` and `receive` limit a server's two processes, both to 2 in the paper (section 6.2); `receive_of`
    overrides `receive` for single servers. The capacity of other links is their rate divided by `stream_bytes_s`,
    rounded up; `links` overrides it for single switch links.
    """

    stream_bytes_s: float
    send: int = 2
    receive: int = 2
    receive_of: Mapping[str, int] | None = None
    links: Mapping[Hop, int] | None = None

    def received_by(self, server: str) -> int:
        """Return the number of chunks that a server may receive at once."""
        return self.receive if self.receive_of is None else self.receive_of.get(server, self.receive)

    def carried(self, tail: str, head: str, bytes_s: float) -> int:
        """Return the number of chunks, at least one, that a link may carry at once in this direction."""
        if self.links is not None and (tail, head) in self.links:
            return self.links[tail, head]
        return max(1, ceil(bytes_s / self.stream_bytes_s))


class Graph:
    """Vertices, edges, and the edges that leave each vertex. Immutable: users keep residual capacities themselves,
    as a list in the order of `edges`.
    """

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
        """Return a new list of residual capacities: the full capacity of each edge."""
        return [edge.capacity for edge in self.edges]
