"""The drawing of a topology for people."""

from __future__ import annotations

from xml.etree import ElementTree

from peacefs.topology.link_load import LinkLoad
from peacefs.topology.model import Topology
from peacefs.topology.svg_drawing import draw_svg
from peacefs.topology.terminal_drawing import draw_tree

_NS = "{http://www.w3.org/2000/svg}"


def test_a_tree_in_the_terminal(figure_5: Topology) -> None:
    assert draw_tree(figure_5) == (
        "SW1  (2 servers)\n"
        "├── SW2  125 MB/s  (2 servers)\n"
        "│   ├── SVR2.1  125 MB/s\n"
        "│   └── SVR2.2  125 MB/s\n"
        "├── SVR1.1  125 MB/s\n"
        "└── SVR1.2  125 MB/s\n"
    )


def test_links_outside_the_tree_are_named(leaf_and_spine: Topology) -> None:
    assert draw_tree(leaf_and_spine) == (
        "spine-1\n"
        "├── /leaf-1  1 GB/s  (2 servers)  + d 125 MB/s\n"
        "│   ├── spine-2  2 GB/s\n"
        "│   ├── a  125 MB/s\n"
        "│   └── b  125 MB/s\n"
        "└── /leaf-2  1 GB/s  (2 servers)  + spine-2 2 GB/s\n"
        "    ├── c  125 MB/s\n"
        "    └── d  125 MB/s\n"
    )


def test_the_load_on_links_is_drawn_as_each_end_sees_it(figure_5: Topology) -> None:
    loads = {
        frozenset(("SW1", "SW2")): LinkLoad("SW2", forth=2, back=1, capacity=2),
        frozenset(("SVR1.1", "SW1")): LinkLoad("SW1", forth=1, back=0, capacity=3),
        frozenset(("SVR1.2", "SW1")): LinkLoad("SW1", forth=0, back=0, capacity=3),
    }
    lines = draw_tree(figure_5, loads).splitlines()
    assert lines[1] == "├── SW2  125 MB/s  [2 out, 1 in, of 2]  (2 servers)"
    assert lines[4:] == ["├── SVR1.1  125 MB/s  [0 out, 1 in, of 3]", "└── SVR1.2  125 MB/s"]
    classes = [line.get("class") for line in ElementTree.fromstring(draw_svg(figure_5, loads)).iter(f"{_NS}line")]
    assert sorted(map(str, classes)) == ["link", "link", "link", "link busy", "link full"]


def test_an_empty_cluster_can_be_drawn() -> None:
    assert draw_tree(Topology()) == "/\n"
    ElementTree.fromstring(draw_svg(Topology()))


def test_the_picture_shows_every_switch_server_and_link_once(leaf_and_spine: Topology) -> None:
    svg = ElementTree.fromstring(draw_svg(leaf_and_spine))
    names = [group.findtext(f"{_NS}text") for group in svg.findall(f"{_NS}g")]
    assert sorted(map(str, names)) == sorted([*leaf_and_spine.switches, *leaf_and_spine.servers])
    assert len(svg.findall(f"{_NS}line")) == len(leaf_and_spine.links)


def test_names_cannot_break_out_of_the_picture() -> None:
    svg = draw_svg(Topology().with_server("<script>", "/a&b"))
    assert "<script>" not in svg
    ElementTree.fromstring(svg)


def test_nothing_overlaps_in_a_wide_picture() -> None:
    topology = Topology()
    for rack in range(3):
        for n in range(7):
            topology = topology.with_server(f"n{rack}-{n}", f"/rack-{rack}")
    svg = ElementTree.fromstring(draw_svg(topology))
    places = [group.get("transform") for group in svg.findall("{http://www.w3.org/2000/svg}g")]
    assert len(set(places)) == len(places) == 25
