"""The network is built from registrations; pipelines use it."""

from __future__ import annotations

import pytest
from support.play import Play, registration

from peacefs.coordinator.cluster.network import load_of
from peacefs.protocol.errors import InvalidTopology
from peacefs.topology.model import Topology
from peacefs.topology.toml_file import parse_toml

_DESCRIBED = """
root = "core"

[defaults]
server_link_bytes_s = 10e6

[[disk]]
name = "flash"
streams = [1, 4]
bytes_s = [300e6, 500e6]

[[switch]]
name = "core"
[[switch]]
name = "/east"
uplink = "core"
bytes_s = 50e6
[[switch]]
name = "/west"
uplink = "core"

[[servers]]
rack = "/east"
names = ["n1.example", "n2"]
bytes_s = 20e6
disk = "flash"

[[servers]]
rack = "/west"
names = ["n3.example:9866", "n4.example:1"]
"""


def test_racks_come_from_what_datanodes_say(play: Play) -> None:
    play.join("n1", "n2", rack="/site/rack-1")
    play.join("n3", rack="site/rack-2/")
    play.join("n4", rack="no rack at all")
    topology = play.cluster.topology()
    assert topology.racks == {"/default-rack": ("n4",), "/site/rack-1": ("n1", "n2"), "/site/rack-2": ("n3",)}
    assert topology.is_tree


def test_a_datanode_that_moves_or_falls_silent_changes_the_network(play: Play) -> None:
    play.join("n1", "n2")
    play.join("n2", rack="/rack-2")
    play.beating.discard("n1")
    play.let_pass(4)
    assert play.cluster.topology().racks == {"/rack-2": ("n2",)}


def test_a_pipeline_loads_its_servers_and_the_links_between_them(play: Play) -> None:
    play.join("n1", "n2")
    play.join("n3", rack="/rack-2")
    topology = play.cluster.topology()
    load = load_of(topology, [["n1", "n2", "n3"], ["n3"], ["gone", "n1"]])
    assert load.servers == {"n1": 2, "n2": 1, "n3": 2}
    assert load.links["/rack-1", "n1"] == 2
    assert load.links["n1", "/rack-1"] == load.links["n2", "/rack-1"] == 1
    assert load.links["/rack-1", "/"] == load.links["/", "/rack-2"] == 1
    assert load.links["/", "/rack-1"] == load.links["/rack-2", "/"] == 0


def test_placed_chunk_is_a_pipeline_until_it_is_abandoned(play: Play) -> None:
    play.join("n1", "n2", "n3")
    play.open_for_business()
    nodes = play.cluster.place(play.now_s, 1, None, 3, frozenset(), 60.0)
    assert play.cluster.pipelines() == [[node.id for node in nodes]]
    play.cluster.write_ended(1)
    assert play.cluster.pipelines() == []


def _described(play: Play, text: str = _DESCRIBED) -> Topology:
    play.cluster.describe_network(parse_toml(text))
    return play.cluster.topology()


def test_a_described_datanode_is_found_by_host_by_id_or_by_its_port(play: Play) -> None:
    play.join("n1", "n2", "n3", "n4", rack="/wherever")
    topology = _described(play)
    assert topology.racks == {"/east": ("n1", "n2"), "/west": ("n3",), "/wherever": ("n4",)}
    assert topology.servers["n2"].disk.best_rate == 500e6
    assert topology.network_bytes_s("n1") == 20e6
    assert topology.network_bytes_s("n3") == 10e6
    assert {link.bytes_s for link in topology.switch_links() if "/east" in link.ends} == {50e6}


def test_the_described_rack_holds_whatever_the_datanode_says_and_placement_goes_by_it(play: Play) -> None:
    play.cluster.describe_network(parse_toml(_DESCRIBED))
    play.join("n1", "n2", "n3", rack="/one-and-the-same")
    play.open_for_business()
    for chunk in range(1, 20):
        nodes = play.cluster.place(play.now_s, chunk, None, 2, frozenset(), 60.0)
        assert {node.rack for node in nodes} == {"/east", "/west"}


def test_one_that_is_not_described_stands_where_it_says_with_the_default_rates(play: Play) -> None:
    play.join("n7", rack="/west")
    play.join("n8", rack="/new/row")
    topology = _described(play)
    assert topology.racks == {"/west": ("n7",), "/new/row": ("n8",)}
    assert topology.network_bytes_s("n7") == 10e6
    assert not play.cluster.network.is_known(registration("n7"))
    assert topology.is_tree


def test_a_new_description_moves_datanodes_that_are_there(play: Play) -> None:
    play.join("n1", "n2", "n3")
    _described(play)
    moved = _described(play, _DESCRIBED.replace('"n2"', "").replace('"n4.example:1"', '"n2"'))
    assert moved.racks == {"/east": ("n1",), "/west": ("n2", "n3")}
    assert [node.rack for node in play.cluster.members.alive()] == ["/east", "/west", "/west"]


def test_a_description_in_which_a_switch_is_called_as_a_datanode_changes_nothing(play: Play) -> None:
    play.join("core", "n1")
    with pytest.raises(InvalidTopology, match="core is a switch and cannot be a datanode too"):
        _described(play)
    assert play.cluster.topology().racks == {"/rack-1": ("core", "n1")}
