"""Plans one hop of many chunks between racks, as a minimum cost flow over the links between switches.

Each chunk starts in its current rack and must reach a rack with room. The flow places as many chunks as possible,
on the cheapest routes. Chunks without a place take an extra arc from source to sink, so the flow problem always
has a solution. Servers have no vertices: all servers of a rack cost the same to reach, so only their number
matters. Idle servers are preferred to busy ones.

A switch has three vertices: `enter`, to which its servers send; `transit`, for chunks from switch to switch; and
`leave`, which leads to its servers. If chunks must not stay in their rack, there is no arc `enter -> leave`. Each
link between switches has a vertex, so that chunks from the switch's servers and chunks in transit share its
capacity.

Arcs are in the order of the graph's edges, independent of the order of the chunks. Costs are integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.graph.python import min_cost_flow

from peacefs.topology.graph import Graph, Role

_COST_UNIT = 1_000_000
_BUSY_COST = 100_000
_UNPLACED_COST = 10**9


@dataclass(frozen=True, slots=True)
class Room:
    """How many chunks a rack can receive on idle servers, and on all servers."""

    idle: int
    total: int


@dataclass(slots=True)
class FlowPath:
    """The route of one chunk between racks: its vertices, each with the graph edge that leads there, or -1."""

    start: str
    end: str = ""
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def edges(self) -> list[int]:
        return [edge for _, edge in self.steps if edge >= 0]


class RackFlow:
    """The flow network of one graph, for FlowScheduler.

    The constructor builds the arcs between switches. `solve` adds the source, the sink and the arcs of the current
    chunks. Used for all steps on the same graph.
    """

    def __init__(self, graph: Graph, *, may_stay: bool) -> None:
        self._graph = graph
        self._may_stay = may_stay
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._costs: list[int] = []
        self._edges: list[int] = []
        self._vertices = 0
        self._transit: dict[int, int] = {}
        self._enter: dict[str, int] = {}
        self._leave: dict[str, int] = {}
        for at, vertex in enumerate(graph.vertices):
            if vertex.role is Role.SWITCH:
                self._add_switch(at, vertex.name)
        for number, edge in enumerate(graph.edges):
            if edge.tail in self._transit and edge.head in self._transit:
                self._add_link(number, graph.vertices[edge.tail].name)
        self._rack_at = {vertex: rack for rack, vertex in self._leave.items()}
        self._source, self._sink = self._new_vertex(), self._new_vertex()

    def _new_vertex(self) -> int:
        self._vertices += 1
        return self._vertices - 1

    def _add_arc(self, tail: int, head: int, cost: int = 0, edge: int = -1) -> None:
        self._tails.append(tail)
        self._heads.append(head)
        self._costs.append(cost * _COST_UNIT)
        self._edges.append(edge)

    def _add_switch(self, at: int, name: str) -> None:
        self._transit[at] = self._new_vertex()
        if name in self._graph.topology.racks:
            self._enter[name], self._leave[name] = self._new_vertex(), self._new_vertex()
            self._add_arc(self._transit[at], self._leave[name])
            if self._may_stay:
                self._add_arc(self._enter[name], self._leave[name])

    def _add_link(self, number: int, tail: str) -> None:
        edge, link = self._graph.edges[number], self._new_vertex()
        self._add_arc(self._transit[edge.tail], link)
        if tail in self._enter:
            self._add_arc(self._enter[tail], link)
        self._add_arc(link, self._transit[edge.head], edge.cost, number)

    # -- solving ---------------------------------------------------------------------------------

    def solve(
        self, racks: Sequence[str], residual: Sequence[int], room: Mapping[str, Room]
    ) -> list[FlowPath | None]:
        """Route one chunk from each of `racks`; prefer earlier chunks.

        The result is None for a chunk that cannot be routed within the residual capacities and the room.
        """
        sent, leaving = self._optimum(racks, residual, room)
        ways = [self._walk(rack, leaving) if is_sent else None for rack, is_sent in zip(racks, sent, strict=True)]
        if self._may_stay:
            return ways
        _part_those_that_came_back([way for way in ways if way is not None])
        return [way if way is not None and way.end != way.start else None for way in ways]

    def _optimum(
        self, racks: Sequence[str], residual: Sequence[int], room: Mapping[str, Room]
    ) -> tuple[list[bool], dict[int, list[list[int]]]]:
        """Return whether each chunk is sent, and the flow: for each vertex, its outgoing arcs as [arc, chunks]."""
        count = len(racks)
        capacities = [count if edge < 0 else residual[edge] for edge in self._edges]
        tails, heads, costs = list(self._tails), list(self._heads), list(self._costs)
        for rack, leave in self._leave.items():
            here = room[rack]
            tails += leave, leave
            heads += self._sink, self._sink
            costs += 0, _BUSY_COST
            capacities += here.idle, here.total - here.idle
        first = len(tails)
        tails += [self._source] * (count + 1)
        heads += [self._enter[rack] for rack in racks]
        heads.append(self._sink)
        costs += [*range(count), _UNPLACED_COST]
        capacities += [*[1] * count, count]
        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            np.array(tails, np.int32), np.array(heads, np.int32), np.array(capacities), np.array(costs)
        )
        solver.set_node_supply(self._source, count)
        solver.set_node_supply(self._sink, -count)
        status = solver.solve()
        assert status == solver.OPTIMAL, f"with an arc for the unplaced there is a flow: {status}"
        flows: list[int] = solver.flows(arcs).tolist()
        leaving: dict[int, list[list[int]]] = {}
        for arc, flow in enumerate(flows[: len(self._edges)]):
            if flow:
                leaving.setdefault(tails[arc], []).append([arc, flow])
        return [flow > 0 for flow in flows[first : first + count]], leaving

    def _walk(self, rack: str, leaving: dict[int, list[list[int]]]) -> FlowPath:
        """Remove one chunk from the flow and return its route, if possible one that avoids its own rack."""
        at, way = self._enter[rack], FlowPath(rack)
        back = -1 if self._may_stay else self._leave[rack]
        while at not in self._rack_at:
            branches = leaving[at]
            branch = next((branch for branch in branches if self._heads[branch[0]] != back), branches[0])
            branch[1] -= 1
            if not branch[1]:
                branches.remove(branch)
            at = self._heads[branch[0]]
            way.steps.append((at, self._edges[branch[0]]))
        way.end = self._rack_at[at]
        return way


def _part_those_that_came_back(ways: Sequence[FlowPath]) -> None:
    """Fix routes that lead back to their own rack.

    A flow does not distinguish chunks, so such a route can exchange its remaining part with another route that
    shares a vertex.
    """
    for way in ways:
        if way.end == way.start:
            for other in ways:
                if way.start not in (other.start, other.end) and _exchange_ends(way, other):
                    break


def _exchange_ends(one: FlowPath, other: FlowPath) -> bool:
    """Exchange the parts of two routes after a common vertex; return False if they have none."""
    places = {vertex: place for place, (vertex, _) in enumerate(other.steps)}
    for here, (vertex, _) in enumerate(one.steps):
        there = places.get(vertex)
        if there is not None:
            one.steps[here + 1 :], other.steps[there + 1 :] = other.steps[there + 1 :], one.steps[here + 1 :]
            one.end, other.end = other.end, one.end
            return True
    return False
