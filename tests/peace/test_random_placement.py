"""HDFS's default placement and its guarantees, on any cluster."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from peacefs.peace.policies.hdfs_placement import (
    Candidate,
    PlacementRequest,
    StillCandidate,
    place_randomly,
    replicas_per_rack_max,
)

GIB = 1 << 30


def candidate(node: str, rack: str, *, host: str = "", room: int = GIB, streams: int = 0) -> Candidate:
    return StillCandidate(node, host or f"host-{node}", rack, room, streams)


def cluster(*racks: int) -> list[Candidate]:
    """Return racks a, b, ... with numbers of nodes, named a0, a1, ..., b0, ..."""
    letters = "abcdefghij"
    return [candidate(f"{letters[i]}{n}", f"/{letters[i]}") for i, size in enumerate(racks) for n in range(size)]


def request(
    replication: int = 3,
    *,
    writer: str | None = None,
    exclude: tuple[str, ...] = (),
    already: tuple[str, ...] = (),
) -> PlacementRequest:
    return PlacementRequest(writer, replication, frozenset(exclude), already)


@st.composite
def situations(draw: st.DrawFn) -> tuple[PlacementRequest, list[Candidate], int]:
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    nodes = [
        candidate(
            f"n{rack}-{n}",
            f"/rack-{rack}",
            host=f"host-{draw(st.integers(0, 8))}",
            room=draw(st.sampled_from([0, GIB])),
            streams=draw(st.integers(0, 5)),
        )
        for rack, size in enumerate(sizes)
        for n in range(size)
    ]
    names = [node.node for node in nodes] + ["gone-1", "gone-2"]
    asked = PlacementRequest(
        draw(st.none() | st.sampled_from([f"host-{n}" for n in range(10)])),
        draw(st.integers(1, 7)),
        frozenset(draw(st.lists(st.sampled_from(names), max_size=4))),
        tuple(draw(st.lists(st.sampled_from(names), max_size=4, unique=True))),
    )
    return asked, nodes, draw(st.integers(0, 2**32))


def usable(asked: PlacementRequest, nodes: list[Candidate]) -> list[Candidate]:
    return [
        node
        for node in nodes
        if node.node not in asked.exclude and node.node not in asked.already and node.available_bytes > 0
    ]


@given(situations())
def test_chosen_nodes_are_distinct_and_usable_and_fewer_than_asked_only_when_there_are_fewer(
    situation: tuple[PlacementRequest, list[Candidate], int],
) -> None:
    asked, nodes, seed = situation
    chosen = place_randomly(asked, nodes, Random(seed))
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= {node.node for node in usable(asked, nodes)}
    missing = max(0, asked.replication - len(asked.already))
    assert len(chosen) == min(missing, len(usable(asked, nodes)))


@given(situations())
def test_the_second_replica_is_on_another_rack_whenever_there_is_one(
    situation: tuple[PlacementRequest, list[Candidate], int],
) -> None:
    asked, nodes, seed = situation
    chosen = place_randomly(asked, nodes, Random(seed))
    rack_of = {node.node: node.rack for node in nodes}
    held = [rack_of[node] for node in (*asked.already, *chosen) if node in rack_of]
    before = [rack_of[node] for node in asked.already if node in rack_of]
    could_use = {node.rack for node in usable(asked, nodes)} | set(before)
    if chosen and len(held) >= 2 and len(could_use) >= 2:
        assert len(set(held)) >= 2


@given(situations())
def test_no_rack_gets_more_than_its_share_unless_the_others_are_full(
    situation: tuple[PlacementRequest, list[Candidate], int],
) -> None:
    asked, nodes, seed = situation
    chosen = place_randomly(asked, nodes, Random(seed))
    rack_of = {node.node: node.rack for node in nodes}
    share = replicas_per_rack_max(asked.replication, len(set(rack_of.values())))
    held = Counter(rack_of[node] for node in (*asked.already, *chosen) if node in rack_of)
    added = Counter(rack_of[node] for node in chosen)
    spare = [node for node in usable(asked, nodes) if node.node not in chosen and held[node.rack] < share]
    if any(held[rack] > share for rack in added):
        assert not spare


@given(situations())
def test_the_first_replica_is_on_the_writers_host_when_a_node_there_can_take_it(
    situation: tuple[PlacementRequest, list[Candidate], int],
) -> None:
    asked, nodes, seed = situation
    chosen = place_randomly(asked, nodes, Random(seed))
    at_writer = {node.node for node in usable(asked, nodes) if node.host == asked.writer_host}
    known = {node.node for node in nodes}
    if at_writer and chosen and not known & set(asked.already):
        assert chosen[0] in at_writer


@given(situations())
def test_the_same_seed_gives_the_same_plan(situation: tuple[PlacementRequest, list[Candidate], int]) -> None:
    asked, nodes, seed = situation
    assert place_randomly(asked, nodes, Random(seed)) == place_randomly(asked, nodes, Random(seed))


@given(situations())
def test_a_pipeline_enters_each_rack_once(situation: tuple[PlacementRequest, list[Candidate], int]) -> None:
    asked, nodes, seed = situation
    rack_of = {node.node: node.rack for node in nodes}
    racks = [rack_of[node] for node in place_randomly(asked, nodes, Random(seed))]
    entered = [rack for at, rack in enumerate(racks) if at == 0 or racks[at - 1] != rack]
    assert len(entered) == len(set(entered))


def test_three_replicas_are_one_at_the_writer_and_two_on_one_other_rack() -> None:
    nodes = cluster(4, 4, 4)
    for seed in range(50):
        first, second, third = place_randomly(request(writer="host-b2"), nodes, Random(seed))
        assert first == "b2"
        assert second[0] == third[0] != "b"


def test_a_writer_whose_own_node_is_excluded_starts_on_its_rack() -> None:
    for seed in range(50):
        chosen = place_randomly(request(writer="host-b2", exclude=("b2",)), cluster(4, 4, 4), Random(seed))
        assert chosen[0] in {"b0", "b1", "b3"}


def test_a_writer_from_outside_starts_anywhere() -> None:
    firsts = {place_randomly(request(writer="laptop"), cluster(3, 3), Random(seed))[0] for seed in range(200)}
    assert firsts == {"a0", "a1", "a2", "b0", "b1", "b2"}


def test_every_node_is_as_likely_as_the_other() -> None:
    nodes = cluster(5, 5)
    rng = Random(7)
    counts = Counter(node for _ in range(3000) for node in place_randomly(request(), nodes, rng))
    assert set(counts) == {node.node for node in nodes}
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_repair_of_replicas_that_share_a_rack_goes_to_another_rack() -> None:
    for seed in range(50):
        (chosen,) = place_randomly(request(already=("a0", "a1")), cluster(4, 4), Random(seed))
        assert chosen.startswith("b")


def test_a_repair_counts_a_replica_on_a_node_it_does_not_know() -> None:
    assert place_randomly(request(2, already=("elsewhere", "a0")), cluster(2, 2), Random(0)) == []
    assert len(place_randomly(request(3, already=("elsewhere", "a0")), cluster(2, 2), Random(0))) == 1


def test_a_busy_node_is_passed_over_until_no_other_will_do() -> None:
    idle = [candidate(f"a{n}", "/a") for n in range(4)]
    busy = candidate("a9", "/a", streams=9)
    rng = Random(0)
    assert all("a9" not in place_randomly(request(4), [*idle, busy], rng) for _ in range(50))
    assert "a9" in place_randomly(request(5), [*idle, busy], rng)


def test_one_rack_alone_holds_all_replicas() -> None:
    assert len(place_randomly(request(), cluster(5), Random(0))) == 3


def test_an_empty_cluster_gives_an_empty_plan() -> None:
    assert place_randomly(request(), [], Random(0)) == []


def test_the_share_of_a_rack_is_hdfss() -> None:
    table = {(1, 4): 1, (2, 1): 2, (2, 2): 1, (3, 1): 3, (3, 2): 2, (3, 5): 2, (4, 2): 3, (5, 2): 4, (10, 3): 5}
    assert {case: replicas_per_rack_max(*case) for case in table} == table
