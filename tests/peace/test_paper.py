"""Algorithm 1 as published: the worked example, and each of its rules."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from support.paper_networks import FIGURE_5

from peacefs.peace.policies.algorithm1 import (
    THREE_REPLICAS,
    PathRequest,
    Template,
    randomized_shortest_path,
    schedule_timestep,
)
from peacefs.peace.policies.interface import Finished, Submitted
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.policies.paper import PaperPolicy
from peacefs.peace.simulator.scenarios import paper_cluster
from peacefs.topology.graph import Graph, Streams
from peacefs.topology.model import Link, Topology
from peacefs.topology.toml_file import parse_toml

TWO_REPLICAS = (Template.SAME_RACK, Template.OTHER_RACK)
ONE_EACH = Streams(stream_bytes_s=125e6, send=1, receive=1)
MB = 1_000_000


@pytest.fixture
def figure_5() -> Graph:
    """Return Figure 5: two switches, two servers each; all edges have capacity 1."""
    return Graph(parse_toml(FIGURE_5), ONE_EACH)


class Draw(Random):
    """Tries edges in the graph's order, or in reverse."""

    def __init__(self, *, backwards: bool) -> None:
        super().__init__(0)
        self._backwards = backwards

    def sample(self, population, k, *, counts=None):  # type: ignore[no-untyped-def]
        assert k == len(population)
        return list(population)[::-1] if self._backwards else list(population)


def test_the_worked_example_of_the_paper(figure_5: Graph) -> None:
    """SVR1.1 gets SVR1.2 and, drawn from the other rack, SVR2.2. Then SVR2.1 has no path in its rack and waits for
    t + 1.
    """
    both = [PathRequest("SVR1.1", 2, 1), PathRequest("SVR2.1", 2, 1)]
    plan = schedule_timestep(both, figure_5, figure_5.capacities(), TWO_REPLICAS, Draw(backwards=True))
    assert plan.paths == [(0, ["SVR1.2", "SVR2.2"])]
    assert plan.unscheduled == [PathRequest("SVR2.1", 2, 1)]
    at_t_plus_1 = schedule_timestep(
        plan.unscheduled, figure_5, figure_5.capacities(), TWO_REPLICAS, Draw(backwards=True)
    )
    assert at_t_plus_1.paths == [(0, ["SVR2.2", "SVR1.2"])]
    assert at_t_plus_1.unscheduled == []


def test_the_other_draw_leaves_room_for_both(figure_5: Graph) -> None:
    """If the second replica had gone to SVR2.1, the writer of the second request, both would be scheduled."""
    both = [PathRequest("SVR1.1", 2, 1), PathRequest("SVR2.1", 2, 1)]
    plan = schedule_timestep(both, figure_5, figure_5.capacities(), TWO_REPLICAS, Draw(backwards=False))
    assert plan.paths == [(0, ["SVR1.2", "SVR2.1"]), (1, ["SVR2.2", "SVR1.1"])]
    assert plan.unscheduled == []


def test_chance_finds_both_draws_and_no_other(figure_5: Graph) -> None:
    both = [PathRequest("SVR1.1", 2, 1), PathRequest("SVR2.1", 2, 1)]
    plans = Counter(
        str(schedule_timestep(both, figure_5, figure_5.capacities(), TWO_REPLICAS, Random(seed)).paths)
        for seed in range(60)
    )
    assert set(plans) == {
        "[(0, ['SVR1.2', 'SVR2.2'])]",
        "[(0, ['SVR1.2', 'SVR2.1']), (1, ['SVR2.2', 'SVR1.1'])]",
    }
    assert min(plans.values()) > 15


def test_the_residual_is_capacity_minus_one_along_each_path_and_has_no_way_back(figure_5: Graph) -> None:
    before = figure_5.capacities()
    plan = schedule_timestep([PathRequest("SVR1.1", 2, 1)], figure_5, before, TWO_REPLICAS, Draw(backwards=True))
    used = {
        f"{figure_5.vertices[edge.tail]} {figure_5.vertices[edge.head]}"
        for edge, left in zip(figure_5.edges, plan.residual, strict=True)
        if left == 0
    }
    assert used == {
        *("SVR1.1:SND SVR1.1:up", "SVR1.1:up SW1:sw", "SW1:sw SVR1.2:dn", "SVR1.2:dn SVR1.2:RCV"),
        *("SVR1.2:SND SVR1.2:up", "SVR1.2:up SW1:sw", "SW1:sw SW2:sw", "SW2:sw SVR2.2:dn", "SVR2.2:dn SVR2.2:RCV"),
    }
    assert before == figure_5.capacities(), "the caller's residual is not touched"


def test_a_chunk_that_is_not_placed_whole_takes_nothing(figure_5: Graph) -> None:
    """Its first replica finds a place, its second one does not: the rack's other server stays free."""
    capacities = figure_5.capacities()
    for at, edge in enumerate(figure_5.edges):
        if str(figure_5.vertices[edge.tail]) == "SW1:sw" and str(figure_5.vertices[edge.head]) == "SW2:sw":
            capacities[at] = 0
    plan = schedule_timestep([PathRequest("SVR1.1", 2, 1)], figure_5, capacities, TWO_REPLICAS, Random(0))
    assert plan.paths == [] and plan.residual == capacities


def test_three_replicas_are_one_near_and_two_on_the_other_rack() -> None:
    topology = paper_cluster()
    graph = Graph(topology, Streams(22.5e6))
    for seed in range(30):
        plan = schedule_timestep(
            [PathRequest("n03", 3, 1)], graph, graph.capacities(), THREE_REPLICAS, Random(seed)
        )
        ((_, nodes),) = plan.paths
        assert [topology.servers[node].rack for node in nodes] == ["/rack-1", "/rack-2", "/rack-2"]
        assert len({"n03", *nodes}) == 4


def test_equal_destinations_are_equally_likely() -> None:
    graph = Graph(paper_cluster(), Streams(22.5e6))
    rng = Random(1)
    ends = Counter[str]()
    for _ in range(1600):
        path = randomized_shortest_path(graph, graph.capacities(), "n00", lambda node: node != "n00", rng)
        assert path is not None
        ends[graph.vertices[graph.edges[path[-1]].head].name] += 1
    assert set(ends) == {f"n{number:02}" for number in range(1, 8)}, "the cheapest are those of the same rack"
    assert max(ends.values()) < 1.35 * min(ends.values())


def test_a_path_avoids_links_that_cost_more() -> None:
    topology = Topology(switches=("a", "b", "c"), root="a").with_server("s", "a").with_server("t", "c")
    links = (Link("a", "b", 1e9, 1), Link("b", "c", 1e9, 1), Link("a", "c", 1e9, 3))
    graph = Graph(Topology(topology.switches, topology.servers, (*topology.links, *links), "a"), ONE_EACH)
    path = randomized_shortest_path(graph, graph.capacities(), "s", lambda node: node == "t", Random(0))
    assert path is not None
    assert [str(graph.vertices[graph.edges[edge].head]) for edge in path] == [
        *("s:up", "a:sw", "b:sw", "c:sw", "t:dn", "t:RCV"),
    ]


# -- timesteps -------------------------------------------------------------------------------------


def policy(inter_rack: int) -> PaperPolicy:
    links = dict.fromkeys([("/rack-1", "/rack-2"), ("/rack-2", "/rack-1")], inter_rack)
    return PaperPolicy(paper_cluster(), Streams(22.5e6, links=links), Random(5))


def write_set(name: str, writer: str, chunks: int) -> WriteSet:
    return WriteSet(name, writer, 3, (64 * MB,) * chunks)


def test_a_step_takes_what_the_link_between_racks_can_carry_and_two_chunks_a_writer() -> None:
    peace = policy(3)
    first = peace.handle([Submitted(write_set("a", "n00", 9))], 0.0)
    assert len(first) == 2, "the capacity of a sending edge is 2"
    assert len(peace.handle([Submitted(write_set("b", "n01", 9))], 0.0)) == 1, "the link is full"
    assert peace.handle([Submitted(write_set("c", "n02", 9))], 0.0) == [], "not now"
    assert peace.handle([Submitted(write_set("d", "n12", 9))], 0.0), "the other direction is not"


def test_the_next_step_begins_when_four_fifths_are_written() -> None:
    peace = policy(5)
    sets = [Submitted(write_set(f"s{n}", f"n{n:02}", 4)) for n in range(8)]
    step = peace.handle(sets, 0.0)
    assert len(step) == 5
    for grant in step[:3]:
        assert peace.handle([Finished(grant.number)], 1.0) == []
    assert len(peace.handle([Finished(step[3].number)], 2.0)) == 5


def test_the_oldest_set_gets_a_chunk_in_every_step() -> None:
    """This bounds waiting: a set waits at most as many steps as there are chunks before it."""
    peace = policy(3)
    in_flight = peace.handle([Submitted(write_set("old", "n00", 5))], 0.0)
    of_old = [sum(grant.write_set == "old" for grant in in_flight)]
    while sum(of_old) < 5:
        now_s = float(len(of_old))
        for writer in ("n01", "n02", "n03"):
            in_flight += peace.handle([Submitted(write_set(f"{writer} at {now_s}", writer, 1))], now_s)
        in_flight = peace.handle([Finished(grant.number) for grant in in_flight], now_s)
        of_old.append(sum(grant.write_set == "old" for grant in in_flight))
    assert all(of_old)
