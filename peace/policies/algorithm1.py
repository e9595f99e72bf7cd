"""Algorithm 1 of the SGuard paper (section 5): which chunks can be written in one timestep, and where.

Names follow the paper: G is a graph of capacities (topology.graph), C the constraint templates, P the plan, W' the
remaining requests. A path reduces the residual capacity of its edges by one. There are no reverse arcs, because a
path must be a route that data can take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from heapq import heappop, heappush
from random import Random

from peacefs.topology.graph import Graph, Role, Vertex

Constraint = Callable[[str], bool]


class Template(Enum):
    """A constraint on the place of a replica, relative to the replicas before it."""

    #: On the writer itself; no link is used.
    SAME_NODE = "same node"
    #: In the rack of the node that sends it.
    SAME_RACK = "same rack"
    #: In a rack without replicas of this chunk and without the writer.
    OTHER_RACK = "other rack"
    ANYWHERE = "anywhere"


#: Each chunk is in two racks and crosses between them once. Replicas after the third go anywhere.
THREE_REPLICAS = (Template.SAME_RACK, Template.OTHER_RACK, Template.SAME_RACK)


@dataclass(slots=True)
class PathRequest:
    """The triple (w, r, k), and the nodes that must not be chosen.

    With `on_writer` the first replica is on w. This is for clusters that need the writer's node, and for writers
    outside the cluster, for which w is the first receiver.
    """

    w: str
    r: int
    k: int
    exclude: frozenset[str] = frozenset()
    on_writer: bool = False


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The outcome of a time step.

    `paths` holds (index of the request, nodes without the writer) for each scheduled request, `residual` the
    capacities that are left, `unscheduled` the requests without a path.
    """

    paths: list[tuple[int, list[str]]]
    residual: list[int]
    unscheduled: list[PathRequest]


def schedule_timestep(
    requests: Iterable[PathRequest],
    graph: Graph,
    residual: Sequence[int],
    templates: Sequence[Template],
    rng: Random,
) -> PathPlan:
    """Run Algorithm 1 for one timestep.

    `residual` are the remaining capacities of this timestep, in the order of `graph.edges`; it is not modified. If
    a chunk of a request cannot be placed, the rest of the request is left for the next step.
    """
    paths: list[tuple[int, list[str]]] = []
    unscheduled: list[PathRequest] = []
    available = list(residual)
    for index, request in enumerate(requests):
        k = request.k
        while k > 0:
            found = _place_chunk(request, graph, available, templates, rng)
            if found is None:
                unscheduled.append(replace(request, k=k))
                break
            nodes, available = found
            paths.append((index, nodes))
            k -= 1
    return PathPlan(paths, available, unscheduled)


def _place_chunk(
    request: PathRequest, graph: Graph, available: Sequence[int], templates: Sequence[Template], rng: Random
) -> tuple[list[str], list[int]] | None:
    """Place all replicas of one chunk, or return None (lines 7 to 25). Each node sends to the next."""
    residual = list(available)
    source, nodes = request.w, list[str]()
    while len(nodes) < request.r:
        template = template_for(templates, graph, request, nodes)
        if template is Template.SAME_NODE:
            path = loopback(graph, residual, source)
        else:
            constraint = create_constraint(template, graph, request, nodes)
            path = randomized_shortest_path(graph, residual, source, constraint, rng)
        if path is None:
            return None
        for edge in path:
            residual[edge] -= 1
        source = graph.vertices[graph.edges[path[-1]].head].name
        nodes.append(source)
    return nodes, residual


def template_for(
    templates: Sequence[Template], graph: Graph, request: PathRequest, nodes: Sequence[str]
) -> Template:
    """Return the template of the next replica; ANYWHERE if no server of the cluster could satisfy it."""
    level = len(nodes)
    template = templates[level] if level < len(templates) else Template.ANYWHERE
    if request.on_writer and not level:
        return Template.SAME_NODE
    if template is Template.SAME_NODE:
        if request.w not in request.exclude:
            return template
        # As in HDFS: a replica that cannot be on the writer's node goes to the writer's rack.
        template = Template.SAME_RACK
    racks, servers = graph.topology.racks, graph.topology.servers
    sender_rack = servers[nodes[-1] if nodes else request.w].rack
    if template is Template.SAME_RACK:
        taken = {request.w, *nodes}
        is_there = any(node not in taken and node not in request.exclude for node in racks[sender_rack])
        return template if is_there else Template.ANYWHERE
    if template is Template.OTHER_RACK:
        used = {servers[node].rack for node in (request.w, *nodes)}
        is_there = any(rack not in used and not request.exclude.issuperset(racks[rack]) for rack in racks)
        return template if is_there else Template.ANYWHERE
    return template


def create_constraint(template: Template, graph: Graph, request: PathRequest, nodes: Sequence[str]) -> Constraint:
    """Return the template as a predicate on nodes, which also requires distinct nodes other than the writer."""
    servers = graph.topology.servers
    taken = {request.w, *nodes, *request.exclude}
    sender_rack = servers[nodes[-1] if nodes else request.w].rack
    racks = {servers[node].rack for node in (request.w, *nodes)}

    def allowed(node: str) -> bool:
        if node in taken:
            return False
        rack = servers[node].rack
        if template is Template.SAME_RACK:
            return rack == sender_rack
        return template is Template.ANYWHERE or rack not in racks

    return allowed


def randomized_shortest_path(
    graph: Graph, residual: Sequence[int], source: str, constraint: Constraint, rng: Random
) -> list[int] | None:
    """Return the edges of a cheapest path from the sender `source` to an allowed receiver; None if there is none.

    Edges are tried in random order, to choose between equal destinations.
    """
    start = graph.position[Vertex(Role.SEND, source)]
    arrived_by: dict[int, int] = {}
    waiting: list[tuple[int, int, int, int]] = [(0, 0, start, -1)]
    tried = 0
    while waiting:
        cost, _, at, edge = heappop(waiting)
        if at in arrived_by:
            continue
        arrived_by[at] = edge
        vertex = graph.vertices[at]
        if vertex.role is Role.RECEIVE and constraint(vertex.name):
            return _edges_to(graph, arrived_by, at)
        leaving = graph.leaving[at]
        for onward in rng.sample(leaving, len(leaving)) if len(leaving) > 1 else leaving:
            head = graph.edges[onward].head
            if residual[onward] > 0 and head not in arrived_by:
                tried += 1
                heappush(waiting, (cost + graph.edges[onward].cost, tried, head, onward))
    return None


def _edges_to(graph: Graph, arrived_by: dict[int, int], at: int) -> list[int]:
    edges: list[int] = []
    while (edge := arrived_by[at]) >= 0:
        edges.append(edge)
        at = graph.edges[edge].tail
    return edges[::-1]


def loopback(graph: Graph, residual: Sequence[int], node: str) -> list[int] | None:
    """Return the path to the writer's own disk, which uses only its receiving edge; None if that edge is full."""
    (edge,) = graph.leaving[graph.position[Vertex(Role.DOWN, node)]]
    return [edge] if residual[edge] > 0 else None
