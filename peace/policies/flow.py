"""Solves the problem of Algorithm 1 for many chunks at once, with minimum cost flows for hops between racks.

Algorithm 1 finds a shortest path for one chunk at a time, without regard to later chunks. With several routes
between racks, planning chunks together gives better plans, and it is faster for thousands of chunks. Plans have
the same form, and obey the same templates and capacities, as those of `algorithm1.schedule_timestep`. Only the
network card in a server's rack is used.

All chunks of a batch take a hop together. A chunk that finds no place in a hop releases everything and may be in
the next batch. Batches continue until no request makes progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from peacefs.topology.graph import Graph, Role, Vertex

from .algorithm1 import PathPlan, PathRequest, Template, schedule_timestep, template_for
from .flow_network import RackFlow, Room
from .rack_load import NodeLoad, RackLoad

#: A request is postponed to the next step after this many unsuccessful batches. One failure is not enough: a flow
#: may mix up the routes of different chunks, and the next, smaller batch may succeed.
_FAILURES_MAX = 2


@dataclass(slots=True, eq=False)
class _Chunk:
    """A chunk during planning: the node that it has reached, and the resources that it holds."""

    index: int
    request: PathRequest
    at: NodeLoad
    nodes: list[NodeLoad] = field(default_factory=list)
    senders: list[NodeLoad] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cables:
    """The edges of a server's sending and receiving half, and the capacity of each half in chunks."""

    sending: tuple[int, int]
    receiving: tuple[int, int]
    sends: int
    receives: int


class FlowScheduler:
    """A replacement for `schedule_timestep`. Data that depends only on the graph is cached between steps."""

    def __init__(self) -> None:
        self._graph: Graph | None = None

    def __call__(
        self,
        requests: Iterable[PathRequest],
        graph: Graph,
        residual: Sequence[int],
        templates: Sequence[Template],
        rng: Random,
    ) -> PathPlan:
        """Plan one step.

        If the flows place no chunk of the first request, Algorithm 1 places one, and the rest of the step is
        planned again. So the oldest request gets a chunk in every step that begins with an empty graph.
        """
        if graph is not self._graph:
            self._graph = graph
            self._cables = _cables(graph)
            self._flows = {
                Template.OTHER_RACK: RackFlow(graph, may_stay=False),
                Template.ANYWHERE: RackFlow(graph, may_stay=True),
            }
        waiting = list(requests)
        plan = self._plan(waiting, graph, PathPlan([], list(residual), []), templates, rng)
        if waiting and all(index for index, _ in plan.paths):
            begun = schedule_timestep([replace(waiting[0], k=1)], graph, residual, templates, rng)
            if begun.paths:
                plan = self._plan(waiting, graph, begun, templates, rng)
        return plan

    def _plan(
        self, waiting: list[PathRequest], graph: Graph, begun: PathPlan, templates: Sequence[Template], rng: Random
    ) -> PathPlan:
        return _Step(self._cables, self._flows, waiting, graph, begun, templates, rng).plan()


def _cables(graph: Graph) -> dict[str, _Cables]:
    number = {(edge.tail, edge.head): at for at, edge in enumerate(graph.edges)}
    found: dict[str, _Cables] = {}
    for name, server in graph.topology.servers.items():
        send, up, down, receive = (
            graph.position[Vertex(role, name)] for role in (Role.SEND, Role.UP, Role.DOWN, Role.RECEIVE)
        )
        switch = graph.position[Vertex(Role.SWITCH, server.rack)]
        sending = number[send, up], number[up, switch]
        receiving = number[switch, down], number[down, receive]
        capacity = graph.edges
        found[name] = _Cables(
            sending,
            receiving,
            sends=min(capacity[edge].capacity for edge in sending),
            receives=min(capacity[edge].capacity for edge in receiving),
        )
    return found


class _Step:
    """The planning of one timestep: loads of servers and links, and the remaining chunks of each request.

    FlowScheduler makes one per step and calls `plan`. Invariant: `_residual` and the loads of the nodes count what
    was in use before the step, plus the paths found so far and the chunks of the current batch.
    """

    def __init__(
        self,
        cables: dict[str, _Cables],
        flows: dict[Template, RackFlow],
        requests: list[PathRequest],
        graph: Graph,
        begun: PathPlan,
        templates: Sequence[Template],
        rng: Random,
    ) -> None:
        self._cables = cables
        self._flows = flows
        self._requests = requests
        self._graph = graph
        self._templates = templates
        self._rng = rng
        self._residual = list(begun.residual)
        self._paths = list(begun.paths)
        self._left = [request.k for request in requests]
        for index, _ in begun.paths:
            self._left[index] -= 1
        self._sends_max = max((cable.sends for cable in cables.values()), default=0)
        self._racks = {rack: RackLoad(rack, index) for index, rack in enumerate(graph.topology.racks)}
        self._nodes = {name: self._node(name) for name in cables}

    def _node(self, name: str) -> NodeLoad:
        """Return a server's load according to its edges.

        A smaller sending capacity counts as streams that are being sent.
        """
        cables = self._cables[name]
        node = NodeLoad(name, self._racks[self._graph.topology.servers[name].rack], cables.receives, 1.0)
        node.receiving = cables.receives - min(self._residual[edge] for edge in cables.receiving)
        node.sending = self._sends_max - min(self._residual[edge] for edge in cables.sending)
        if node.slots:
            node.rack.add(node)
        return node

    def plan(self) -> PathPlan:
        hopeful = [index for index, left in enumerate(self._left) if left]
        failures = Counter[int]()
        while batch := self._batch(hopeful):
            placed = {chunk.index for chunk in self._send(batch)}
            failures.update({chunk.index for chunk in batch} - placed)
            hopeful = [index for index in hopeful if self._left[index] and failures[index] < _FAILURES_MAX]
        unscheduled = [
            replace(request, k=left) for request, left in zip(self._requests, self._left, strict=True) if left
        ]
        return PathPlan(self._paths, self._residual, unscheduled)

    # -- batches ---------------------------------------------------------------------------------

    def _batch(self, hopeful: Sequence[int]) -> list[_Chunk]:
        """Return the next chunks to plan, oldest requests first.

        Their number is limited by the cluster's free slots, and by the free sending streams of each writer and its
        rack.
        """
        room = sum(rack.free_slots for rack in self._racks.values())
        at_home = next((n for n, t in enumerate(self._templates) if t is not Template.SAME_RACK), 0)
        share = {rack: max(1, self._free_sends(load) // (at_home + 1)) for rack, load in self._racks.items()}
        sending = Counter[str]()
        batch: list[_Chunk] = []
        for index in hopeful:
            if not room:
                break
            request, writer = self._requests[index], self._nodes[self._requests[index].w]
            rack = writer.rack.name
            can_send = self._sends_max - writer.sending - sending[request.w]
            count = max(0, min(self._left[index], can_send, room // request.r, share[rack]))
            sending[request.w] += count
            share[rack] -= count
            room -= count * request.r
            batch += [_Chunk(index, request, writer) for _ in range(count)]
        return batch

    def _free_sends(self, rack: RackLoad) -> int:
        return sum(self._sends_max - node.sending for node in rack.nodes)

    def _send(self, batch: list[_Chunk]) -> list[_Chunk]:
        """Plan every hop of the pipelines of a batch. Return the chunks that got a whole pipeline."""
        through: list[_Chunk] = []
        level = 0
        while batch:
            groups: dict[Template, list[_Chunk]] = {}
            for chunk in batch:
                nodes = [node.name for node in chunk.nodes]
                template = template_for(self._templates, self._graph, chunk.request, nodes)
                groups.setdefault(template, []).append(chunk)
            batch = [chunk for template in groups for chunk in self._hop(groups[template], template, level)]
            level += 1
            through += [chunk for chunk in batch if chunk.request.r == level]
            batch = [chunk for chunk in batch if chunk.request.r > level]
        for chunk in through:
            self._left[chunk.index] -= 1
            self._paths.append((chunk.index, [node.name for node in chunk.nodes]))
        return through

    # -- hops ------------------------------------------------------------------------------------

    def _hop(self, batch: list[_Chunk], template: Template, level: int) -> list[_Chunk]:
        if template is Template.SAME_NODE:
            return [chunk for chunk in batch if self._stay(chunk)]
        if template is Template.SAME_RACK:
            return [chunk for chunk in batch if self._move(chunk, chunk.at.rack, [], level)]
        racks = [chunk.at.rack.name for chunk in batch]
        ways = self._flows[template].solve(racks, self._residual, self._room(batch, template, level))
        arrived: list[_Chunk] = []
        for chunk, way in zip(batch, ways, strict=True):
            if way is None:
                self._give_back(chunk)
            elif self._move(chunk, self._racks[way.end], way.edges, level):
                arrived.append(chunk)
        return arrived

    def _room(self, batch: Sequence[_Chunk], template: Template, level: int) -> dict[str, Room]:
        """Return how many chunks each rack can receive in this hop.

        Each chunk needs additional slots for later replicas in the same rack. If chunks must leave their rack, a
        rack gets at most the chunks from other racks.
        """
        following = self._templates[level + 1 : max(chunk.request.r for chunk in batch)]
        stay = next((n for n, later in enumerate(following) if later is not Template.SAME_RACK), len(following))
        own = Counter(chunk.at.rack.name for chunk in batch) if template is Template.OTHER_RACK else Counter[str]()
        room: dict[str, Room] = {}
        for name, rack in self._racks.items():
            total = min(rack.free_slots // (1 + stay), len(batch) - own[name])
            if stay:
                total = min(total, self._free_sends(rack) // stay)
            idle = len(rack.buckets[0]) // (1 + stay) if rack.buckets else 0
            room[name] = Room(min(idle, total), total)
        return room

    def _stay(self, chunk: _Chunk) -> bool:
        node = chunk.at
        if node.receiving >= node.slots:
            self._give_back(chunk)
            return False
        self._take(chunk, node, [self._cables[node.name].receiving[1]])
        return True

    def _move(self, chunk: _Chunk, rack: RackLoad, links: list[int], level: int) -> bool:
        """Place the next replica on a server of the rack, over these links. If impossible, release the chunk."""
        sends_on = chunk.request.r > level + 1
        barred = {chunk.request.w, *chunk.request.exclude, *(node.name for node in chunk.nodes)}
        target = None
        if chunk.at.sending < self._sends_max and all(self._residual[link] > 0 for link in links):
            target = rack.least_loaded(self._rng, barred, self._sends_max if sends_on else self._sends_max + 1)
        if target is None:
            self._give_back(chunk)
            return False
        chunk.at.sending += 1
        chunk.senders.append(chunk.at)
        sending, receiving = self._cables[chunk.at.name].sending, self._cables[target.name].receiving
        self._take(chunk, target, [*sending, *links, *receiving])
        return True

    def _take(self, chunk: _Chunk, node: NodeLoad, edges: Sequence[int]) -> None:
        for edge in edges:
            self._residual[edge] -= 1
            assert self._residual[edge] >= 0
        node.rack.take(node)
        chunk.edges += edges
        chunk.nodes.append(node)
        chunk.at = node

    def _give_back(self, chunk: _Chunk) -> None:
        for edge in chunk.edges:
            self._residual[edge] += 1
        for node in chunk.nodes:
            node.rack.give_back(node)
        for sender in chunk.senders:
            sender.sending -= 1
