"""A topology while nodes are added, removed and moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.protocol.errors import InvalidTopology
from peacefs.topology.model import Link, Topology
from peacefs.topology.routes import Routes


def test_racks_grow_from_what_datanodes_say() -> None:
    topology = Topology().with_server("n1", "/rack-1").with_server("n2", "/rack-1").with_server("n3", "/rack-2")
    assert topology.racks == {"/rack-1": ("n1", "n2"), "/rack-2": ("n3",)}
    assert topology.switches == ("/", "/rack-1", "/rack-2")
    assert topology.is_tree


def test_a_deep_rack_grows_with_all_switches_above_it() -> None:
    topology = Topology().with_server("n1", "/east/hall-2/rack-7").with_server("n2", "/east/hall-3/rack-1")
    assert set(topology.switches) == {
        *("/", "/east", "/east/hall-2", "/east/hall-2/rack-7", "/east/hall-3", "/east/hall-3/rack-1"),
    }
    assert Routes(topology).between_racks("/east/hall-2/rack-7", "/east/hall-3/rack-1") == [
        (
            ("/east/hall-2/rack-7", "/east/hall-2"),
            ("/east/hall-2", "/east"),
            ("/east", "/east/hall-3"),
            ("/east/hall-3", "/east/hall-3/rack-1"),
        )
    ]


def test_an_unknown_rack_grows_below_the_root_that_the_file_named(figure_5: Topology) -> None:
    grown = figure_5.with_server("n9", "/rack-9")
    assert Routes(grown).between_racks("/rack-9", "SW2") == [(("/rack-9", "SW1"), ("SW1", "SW2"))]


def test_a_node_that_goes_takes_its_links_with_it(leaf_and_spine: Topology) -> None:
    without = leaf_and_spine.without_server("d")
    assert "d" not in without.servers
    assert all("d" not in link.ends for link in without.links)
    assert len(without.links) == len(leaf_and_spine.links) - 2


def test_a_node_that_moves_is_in_its_new_rack_alone_and_keeps_its_disk_and_card() -> None:
    fast = Topology().defaults.disk.scaled(4)
    before = Topology().with_server("n1", "/rack-1", disk=fast, bytes_s=1.25e9)
    after = before.with_server("n1", "/rack-2")
    assert after.racks == {"/rack-2": ("n1",)}
    assert after.servers["n1"].disk == fast
    assert after.network_bytes_s("n1") == 1.25e9
    assert before.racks == {"/rack-1": ("n1",)}, "a topology in use does not change under its user"


def test_a_registration_that_says_nothing_new_changes_nothing(figure_5: Topology) -> None:
    assert figure_5.with_server("SVR1.1", "SW1") is figure_5
    assert figure_5.without_server("nobody") is figure_5


def test_the_first_of_a_servers_links_leads_to_its_rack(leaf_and_spine: Topology) -> None:
    assert [link.b for link in leaf_and_spine.server_links("d")] == ["/leaf-2", "/leaf-1"]
    assert leaf_and_spine.network_bytes_s("d") == 250e6


def test_all_cheapest_ways_are_found(leaf_and_spine: Topology) -> None:
    assert not leaf_and_spine.is_tree
    assert Routes(leaf_and_spine).between_racks("/leaf-1", "/leaf-2") == [
        (("/leaf-1", "spine-1"), ("spine-1", "/leaf-2")),
        (("/leaf-1", "spine-2"), ("spine-2", "/leaf-2")),
    ]
    assert Routes(leaf_and_spine).between_racks("/leaf-1", "/leaf-1") == [()]


def test_a_dearer_way_is_no_way(leaf_and_spine: Topology) -> None:
    links = (replace(link, cost=5) if link.b == "spine-2" else link for link in leaf_and_spine.links)
    dearer = replace(leaf_and_spine, links=tuple(links))
    ways = Routes(dearer).between_racks("/leaf-1", "/leaf-2")
    assert ways == [(("/leaf-1", "spine-1"), ("spine-1", "/leaf-2"))]


def test_links_that_cost_nothing_do_not_lead_in_circles() -> None:
    triangle = Topology(
        switches=("a", "b", "c"),
        links=(Link("a", "b", 1.0, cost=0), Link("b", "c", 1.0, cost=0), Link("c", "a", 1.0, cost=0)),
        root="a",
    )
    for way in Routes(triangle).between_racks("a", "c"):
        assert len({tail for tail, _ in way}) == len(way) and way[0][0] == "a" and way[-1][1] == "c"


def test_a_server_and_a_rack_cannot_share_a_name() -> None:
    topology = Topology().with_server("n1", "/rack-1")
    with pytest.raises(InvalidTopology, match="/rack-1 is a switch"):
        topology.with_server("/rack-1", "/rack-1")
    with pytest.raises(InvalidTopology, match="n1 is a server"):
        topology.with_server("n2", "n1")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.sampled_from(["/1", "/2", "/2/x", "/3/y/z"]))))
def test_any_history_leaves_one_tree_where_each_server_is_where_it_was_last_put(
    history: list[tuple[str, str | None]],
) -> None:
    topology, last = Topology(), dict[str, str]()
    for server, rack in history:
        if rack is None:
            topology = topology.without_server(server)
            last.pop(server, None)
        else:
            topology = topology.with_server(server, rack)
            last[server] = rack
    assert {server.name: server.rack for server in topology.servers.values()} == last
    assert topology.is_tree
    routes = Routes(topology)
    for rack in topology.racks:
        for other in topology.racks:
            (there,), (back,) = routes.between_racks(rack, other), routes.between_racks(other, rack)
            assert [tail for tail, _ in reversed(there)] == [head for _, head in back]
