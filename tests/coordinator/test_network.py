"""The network that grows from registrations, and what pipelines use of it."""

from __future__ import annotations

from support.play import Play

from peacefs.coordinator.network import live_topology, load_of


def test_racks_come_from_what_datanodes_say(play: Play) -> None:
    play.join("n1", "n2", rack="/site/rack-1")
    play.join("n3", rack="site/rack-2/")
    play.join("n4", rack="no rack at all")
    topology = live_topology(play.cluster.members.alive())
    assert topology.racks == {"/default-rack": ("n4",), "/site/rack-1": ("n1", "n2"), "/site/rack-2": ("n3",)}
    assert topology.is_tree


def test_a_datanode_that_moves_or_falls_silent_changes_the_network(play: Play) -> None:
    play.join("n1", "n2")
    play.join("n2", rack="/rack-2")
    play.beating.discard("n1")
    play.let_pass(4)
    assert live_topology(play.cluster.members.alive()).racks == {"/rack-2": ("n2",)}


def test_a_pipeline_loads_its_servers_and_the_links_between_them(play: Play) -> None:
    play.join("n1", "n2")
    play.join("n3", rack="/rack-2")
    topology = live_topology(play.cluster.members.alive())
    load = load_of(topology, [["n1", "n2", "n3"], ["n3"], ["gone", "n1"]])
    assert load.servers == {"n1": 2, "n2": 1, "n3": 2}
    assert load.links["/rack-1", "n1"] == 2
    assert load.links["n1", "/rack-1"] == load.links["n2", "/rack-1"] == 1
    assert load.links["/rack-1", "/"] == load.links["/", "/rack-2"] == 1
    assert load.links["/", "/rack-1"] == load.links["/rack-2", "/"] == 0


def test_what_the_cluster_places_is_a_pipeline_until_it_is_given_up(play: Play) -> None:
    play.join("n1", "n2", "n3")
    play.open_for_business()
    nodes = play.cluster.place(play.now_s, 1, None, 3, frozenset(), 60.0)
    assert play.cluster.pipelines() == [[node.id for node in nodes]]
    play.cluster.abandoned(1)
    assert play.cluster.pipelines() == []
