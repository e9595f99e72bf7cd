"""The paper's directed graph, and its export to other programs."""

from __future__ import annotations

from xml.etree import ElementTree

from peacefs.topology.graph import Graph, Role, Streams
from peacefs.topology.graph_export import to_adjacency, to_dot, to_graphml
from peacefs.topology.model import Topology

ONE_EACH = Streams(stream_bytes_s=125e6, send=1, receive=1)


def test_figure_5_edge_by_edge(figure_5: Topology) -> None:
    """Solid edges cost 1, dashed ones 0, as in the figure; all capacities are 1, as in its example."""
    solid = {"cost": 1, "capacity": 1}
    dashed = {"cost": 0, "capacity": 1}
    expected: dict[str, dict[str, dict[str, int]]] = {"SW1:sw": {"SW2:sw": solid}, "SW2:sw": {"SW1:sw": solid}}
    for rack, servers in {"SW1": ("SVR1.1", "SVR1.2"), "SW2": ("SVR2.1", "SVR2.2")}.items():
        for server in servers:
            expected[f"{server}:SND"] = {f"{server}:up": solid}
            expected[f"{server}:up"] = {f"{rack}:sw": dashed}
            expected[f"{rack}:sw"][f"{server}:dn"] = dashed
            expected[f"{server}:dn"] = {f"{server}:RCV": solid}
            expected[f"{server}:RCV"] = {}
    assert to_adjacency(Graph(figure_5, ONE_EACH)) == expected


def test_capacities_are_streams_derived_from_rates(figure_5: Topology) -> None:
    graph = to_adjacency(Graph(figure_5, Streams(stream_bytes_s=22.5e6)))
    assert graph["SW1:sw"]["SW2:sw"]["capacity"] == 6, "125 MB/s carry 5.6 streams of 22.5 MB/s; a sixth fills it"
    assert graph["SVR1.1:SND"]["SVR1.1:up"]["capacity"] == 2
    assert graph["SVR1.1:dn"]["SVR1.1:RCV"]["capacity"] == 2


def test_a_link_or_server_can_be_given_a_capacity_of_its_own(figure_5: Topology) -> None:
    streams = Streams(22.5e6, receive_of={"SVR1.1": 0}, links={("SW1", "SW2"): 3})
    graph = to_adjacency(Graph(figure_5, streams))
    assert graph["SW1:sw"]["SW2:sw"]["capacity"] == 3
    assert graph["SW2:sw"]["SW1:sw"]["capacity"] == 6
    assert graph["SVR1.1:dn"]["SVR1.1:RCV"]["capacity"] == 0
    assert graph["SVR1.2:dn"]["SVR1.2:RCV"]["capacity"] == 2


def test_a_server_with_two_network_cards_has_one_process_of_each_kind(leaf_and_spine: Topology) -> None:
    graph = to_adjacency(Graph(leaf_and_spine, ONE_EACH))
    assert set(graph["d:up"]) == {"/leaf-1:sw", "/leaf-2:sw"}
    assert graph["d:SND"] == {"d:up": {"cost": 1, "capacity": 1}}
    assert {tail for tail, heads in graph.items() if "d:dn" in heads} == {"/leaf-1:sw", "/leaf-2:sw"}


def test_graphml_can_be_read_back(figure_5: Topology) -> None:
    graph = Graph(figure_5, ONE_EACH)
    name = "{http://graphml.graphdrawing.org/xmlns}"
    body = ElementTree.fromstring(to_graphml(graph)).find(f"{name}graph")
    assert body is not None and body.get("edgedefault") == "directed"
    read: dict[str, dict[str, dict[str, int]]] = {str(node.get("id")): {} for node in body.findall(f"{name}node")}
    for edge in body.findall(f"{name}edge"):
        data = {str(item.get("key")): int(item.text or "") for item in edge.findall(f"{name}data")}
        read[str(edge.get("source"))][str(edge.get("target"))] = data
    assert read == to_adjacency(graph)
    roles = {node.findtext(f"{name}data[@key='role']") for node in body.findall(f"{name}node")}
    assert roles == {role.value for role in Role}


def test_dot_names_each_edge_once_with_its_capacity(figure_5: Topology) -> None:
    lines = to_dot(Graph(figure_5, ONE_EACH)).splitlines()
    assert lines[0] == "digraph network {" and lines[-1] == "}"
    assert '  "SVR1.1:SND" -> "SVR1.1:up" [label="1", style=solid];' in lines
    assert '  "SVR1.1:up" -> "SW1:sw" [label="1", style=dashed];' in lines
    assert sum(" -> " in line for line in lines) == 18


def test_dot_survives_names_with_quotes() -> None:
    text = to_dot(Graph(Topology().with_server('say "hi"\\', "/r"), ONE_EACH))
    assert r'"say \"hi\"\\:SND"' in text
