"""A written topology is read as the same network."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from peacefs.topology.model import Link, Topology
from peacefs.topology.rate_curve import MB, RateCurve
from peacefs.topology.toml_file import parse_structure, parse_toml
from peacefs.topology.toml_writer import to_structure, to_toml

_NAMES = st.text(st.characters(blacklist_categories=("C", "Z")), min_size=1, max_size=6)
_RATES = st.floats(1.0, 1e12)
_CURVES = st.builds(
    lambda rates: RateCurve(tuple((2**at, rate) for at, rate in enumerate(rates))), st.lists(_RATES, min_size=1)
)


def _same(one: Topology, other: Topology) -> bool:
    """Compare topologies. Links may be in another order, or have their ends exchanged."""

    def sorted_links(topology: Topology) -> list[tuple[list[str], float, int]]:
        return sorted((sorted(link.ends), link.bytes_s, link.cost) for link in topology.links)

    return sorted_links(one) == sorted_links(other) and replace(one, links=()) == replace(other, links=())


@st.composite
def _networks(draw: st.DrawFn) -> Topology:
    racks = draw(st.lists(_NAMES.map("/{}".format), min_size=1, max_size=4, unique=True))
    topology = Topology(switches=("core",), root="core")
    topology = replace(topology, defaults=replace(topology.defaults, disk=draw(_CURVES)))
    for rack in racks:
        link = Link(rack, "core", draw(_RATES), draw(st.integers(0, 9)))
        topology = replace(topology, switches=(*topology.switches, rack), links=(*topology.links, link))
    for server in draw(st.lists(_NAMES.map("n{}".format), max_size=6, unique=True)):
        rack, *others = draw(st.permutations(racks))
        topology = topology.with_server(server, rack, disk=draw(_CURVES), bytes_s=draw(_RATES))
        if others and draw(st.booleans()):
            second = Link(server, others[0], draw(_RATES))
            topology = replace(topology, links=(*topology.links, second))
    return topology


@given(_networks())
def test_written_topology_is_read_again_as_it_was(topology: Topology) -> None:
    assert _same(parse_toml(to_toml(topology)), topology)
    assert _same(parse_structure(to_structure(topology)), topology)


def test_servers_that_are_alike_share_a_table(leaf_and_spine: Topology) -> None:
    assert _same(parse_toml(to_toml(leaf_and_spine)), leaf_and_spine)
    alike = Topology().with_server("n1", "/r").with_server("n2", "/r").with_server("n3", "/r", bytes_s=10 * MB)
    text = to_toml(alike)
    assert text.count("[[servers]]") == 2
    assert 'names = ["n1", "n2"]\nbytes_s = 125_000_000\n' in text
