"""Planning by minimum cost flows: the rules of Algorithm 1, with a view of all requests together."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.policies.algorithm1 import THREE_REPLICAS, PathRequest, Template, schedule_timestep
from peacefs.peace.policies.flow import FlowScheduler
from peacefs.peace.simulator.scenarios import paper_cluster, star
from peacefs.topology.graph import Graph, Role, Streams
from peacefs.topology.model import Link, Topology

STREAMS = Streams(22.5e6)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Graph, list[PathRequest], int]:
    topology = Topology()
    for rack in draw(st.lists(st.sampled_from(["/a", "/b", "/c", "/far/d"]), min_size=1, unique=True)):
        for number in range(draw(st.integers(1, 6))):
            topology = topology.with_server(f"{rack[-1]}{number}", rack)
    servers = sorted(topology.servers)
    requests = [
        PathRequest(writer, draw(st.integers(1, min(4, len(servers)))), draw(st.integers(1, 6)))
        for writer in draw(st.lists(st.sampled_from(servers), max_size=5))
    ]
    feasible = [request for request in requests if request.r < len(servers)]
    streams = Streams(22.5e6, send=draw(st.integers(1, 3)), receive=draw(st.integers(1, 3)))
    return Graph(topology, streams), feasible, draw(st.integers(0, 9))


@given(situations())
@settings(max_examples=often(24, 60), deadline=None)
def test_a_plan_never_exceeds_a_capacity_and_obeys_the_templates(
    situation: tuple[Graph, list[PathRequest], int],
) -> None:
    graph, requests, seed = situation
    plan = FlowScheduler()(requests, graph, graph.capacities(), THREE_REPLICAS, Random(seed))
    servers = graph.topology.servers
    sends, receives = Counter[str](), Counter[str]()
    for index, nodes in plan.paths:
        request = requests[index]
        assert len({request.w, *nodes}) == request.r + 1
        sends.update([request.w, *nodes[:-1]])
        receives.update(nodes)
        racks = [servers[node].rack for node in (request.w, *nodes)]
        if len(graph.topology.racks[racks[0]]) > 1:
            assert racks[1] == racks[0]
            if len(nodes) > 1 and len(graph.topology.racks) > 1:
                assert racks[2] != racks[0]
    for edge, capacity, left in zip(graph.edges, graph.capacities(), plan.residual, strict=True):
        vertex = graph.vertices[edge.tail]
        assert 0 <= left <= capacity
        if vertex.role is Role.SEND:
            assert capacity - left == sends[vertex.name]
        if vertex.role is Role.DOWN:
            assert capacity - left == receives[vertex.name]
    placed = Counter(index for index, _ in plan.paths)
    left_over = Counter[str]()
    for request in plan.unscheduled:
        left_over[request.w] += request.k
    for writer in {request.w for request in requests}:
        asked = sum(request.k for request in requests if request.w == writer)
        got = sum(placed[index] for index, request in enumerate(requests) if request.w == writer)
        assert got + left_over[writer] == asked


@given(situations())
@settings(max_examples=often(12, 30), deadline=None)
def test_the_same_seed_gives_the_same_plan(situation: tuple[Graph, list[PathRequest], int]) -> None:
    graph, requests, seed = situation
    plans = [FlowScheduler()(requests, graph, graph.capacities(), THREE_REPLICAS, Random(seed)) for _ in range(2)]
    assert plans[0] == plans[1]


@given(situations())
@settings(max_examples=often(12, 30), deadline=None)
def test_the_first_request_gets_a_chunk_in_every_step(situation: tuple[Graph, list[PathRequest], int]) -> None:
    graph, requests, seed = situation
    plan = FlowScheduler()(requests, graph, graph.capacities(), THREE_REPLICAS, Random(seed))
    if requests:
        assert any(index == 0 for index, _ in plan.paths)


def two_ways() -> Graph:
    """Return a network where racks a and b reach rack z by switch x, one chunk at a time; a has a more expensive
    path.
    """
    racks = Topology(switches=("x", "y", "a", "b", "z"), root="x")
    for rack in ("a", "b", "z"):
        for number in range(3):
            racks = racks.with_server(f"{rack}{number}", rack)
    links = (
        *(Link("a", "x", 1e9), Link("b", "x", 1e9), Link("x", "z", 1e9)),
        *(Link("a", "y", 1e9, 2), Link("y", "z", 1e9, 2)),
    )
    topology = Topology(racks.switches, racks.servers, (*racks.links, *links), "x")
    narrow = {(one, other): 1 for link in links for one, other in ((link.a, link.b), (link.b, link.a))}
    narrow["x", "a"] = narrow["x", "b"] = 0
    narrow["z", "x"] = narrow["z", "y"] = 0
    return Graph(topology, Streams(22.5e6, links=narrow))


def test_flow_sees_what_one_shortest_path_at_a_time_is_blind_to() -> None:
    graph = two_ways()
    requests, other_rack = [PathRequest("a0", 1, 1), PathRequest("b0", 1, 1)], (Template.OTHER_RACK,)
    one_by_one = schedule_timestep(requests, graph, graph.capacities(), other_rack, Random(0))
    assert [index for index, _ in one_by_one.paths] == [0], "a0 took the cheap way, the only one that b0 has"
    together = FlowScheduler()(requests, graph, graph.capacities(), other_rack, Random(0))
    assert {index for index, _ in together.paths} == {0, 1}


def test_a_full_network_is_a_result_and_not_an_error() -> None:
    graph = Graph(paper_cluster(), STREAMS)
    nothing = [0] * len(graph.edges)
    request = PathRequest("n00", 3, 4)
    plan = FlowScheduler()([request], graph, nothing, THREE_REPLICAS, Random(0))
    assert plan.paths == [] and plan.unscheduled == [request] and plan.residual == nothing


def test_streams_spread_over_idle_servers_first() -> None:
    graph = Graph(star(4, 10, 1.0), STREAMS)
    requests = [PathRequest(f"n{rack:02}-00", 3, 2) for rack in range(4)]
    plan = FlowScheduler()(requests, graph, graph.capacities(), THREE_REPLICAS, Random(0))
    received = Counter(node for _, nodes in plan.paths for node in nodes)
    assert len(plan.paths) == 8 and max(received.values()) == 1


def test_a_pipeline_is_chained_and_crosses_once() -> None:
    graph = Graph(star(3, 6, 1.0), STREAMS)
    plan = FlowScheduler()([PathRequest("n01-02", 3, 2)], graph, graph.capacities(), THREE_REPLICAS, Random(0))
    for _, nodes in plan.paths:
        racks = [graph.topology.servers[node].rack for node in ("n01-02", *nodes)]
        assert sum(a != b for a, b in pairwise(racks)) == 1
