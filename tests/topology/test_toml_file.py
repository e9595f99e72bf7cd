"""Networks described in TOML: valid files, and messages for mistakes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.protocol.errors import InvalidTopology
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Link, Topology
from peacefs.topology.rate_curve import PAPER_DISK, RateCurve
from peacefs.topology.toml_file import parse_toml

TWO_RACKS = """\
root = "core"
[defaults]
server_link_bytes_s = 1.25e9
disk = "ssd"
[[disk]]
name = "ssd"
streams = [1, 8]
bytes_s = [400e6, 900e6]
[[disk]]
name = "old"
streams = [1]
bytes_s = [20e6]
[[switch]]
name = "core"
[[switch]]
name = "/rack-1"
uplink = "core"
bytes_s = 5e9
[[switch]]
name = "/rack-2"
uplink = "core"
cost = 2
[[servers]]
rack = "/rack-1"
names = [
    "n1",
    "n2",
]
[[servers]]
rack = "/rack-2"
names = ["n3"]
bytes_s = 125e6
disk = "old"
"""


def test_a_tree_of_two_racks() -> None:
    topology = parse_toml(TWO_RACKS)
    assert topology.racks == {"/rack-1": ("n1", "n2"), "/rack-2": ("n3",)}
    assert set(topology.links) == {
        Link("n1", "/rack-1", 1.25e9),
        Link("n2", "/rack-1", 1.25e9),
        Link("n3", "/rack-2", 125e6),
        Link("/rack-1", "core", 5e9),
        Link("/rack-2", "core", 125e6, cost=2),
    }
    assert topology.servers["n1"].disk == RateCurve(((1, 400e6), (8, 900e6)))
    assert topology.servers["n3"].disk == RateCurve(((1, 20e6),))
    assert topology.root == "core"


def test_links_and_disks_that_nobody_described_are_gigabit_and_the_papers(figure_5: Topology) -> None:
    assert {link.bytes_s for link in figure_5.links} == {125e6}
    assert figure_5.servers["SVR1.1"].disk == PAPER_DISK


def test_a_mesh_may_have_cycles_and_a_server_two_network_cards(leaf_and_spine: Topology) -> None:
    assert not leaf_and_spine.is_tree
    assert Link("d", "/leaf-1", 125e6, cost=3) in leaf_and_spine.server_links("d")


MISTAKES = {
    "unknown rack": ('rack = "/rack-2"', 'rack = "/rack-7"', 30, "no switch /rack-7"),
    "unknown uplink": ('uplink = "core"\ncost', 'uplink = "cone"\ncost', 21, "no switch cone"),
    "unknown root": ('root = "core"', 'root = "cone"', 1, "no switch cone"),
    "unknown disk": ('disk = "old"', 'disk = "new"', 33, "no disk new"),
    "zero rate": ("bytes_s = 125e6", "bytes_s = 0", 32, "above zero"),
    "negative rate": ("bytes_s = 5e9", "bytes_s = -1", 18, "above zero"),
    "no number": ("bytes_s = 125e6", "bytes_s = nan", 32, "above zero"),
    "endless rate": ("bytes_s = 125e6", "bytes_s = inf", 32, "above zero"),
    "zero default": ("server_link_bytes_s = 1.25e9", "server_link_bytes_s = 0", 3, "above zero"),
    "negative cost": ("cost = 2", "cost = -2", 22, "negative"),
    "fractional cost": ("cost = 2", "cost = 1.5", 22, "expected int"),
    "server twice in a list": ('    "n2",', '    "n1",', 27, "n1 is listed twice, first in line 26"),
    "server in two racks": ('names = ["n3"]', 'names = ["n1"]', 31, "n1 is listed twice, first in line 26"),
    "switch twice": ('name = "/rack-2"', 'name = "/rack-1"', 20, "/rack-1 is described twice, first in line 16"),
    "server named like a switch": ('names = ["n3"]', 'names = ["core"]', 31, "core is a switch, see line 14"),
    "empty name": ('names = ["n3"]', 'names = [""]', 31, "no name"),
    "link to itself": ('uplink = "core"\ncost', 'uplink = "/rack-2"\ncost', 21, "leads back"),
    "island": ('uplink = "core"\ncost = 2', "cost = 2", 20, "/rack-2 is on an island"),
    "unknown key": ("cost = 2", "weight = 2", 22, "unknown field weight"),
    "unknown top-level key": ('root = "core"', 'rooot = "core"', 1, "unknown field rooot"),
    "unknown table": ("[defaults]", "[default]", 2, "unknown field default"),
    "wrong type": ('names = ["n3"]', 'names = "n3"', 31, "expected array"),
    "not a rate": ("bytes_s = 5e9", 'bytes_s = "fast"', 18, "expected float"),
    "missing key": ('names = ["n3"]', "", 29, "missing required field names"),
    "falling streams": ("streams = [1, 8]", "streams = [8, 1]", 6, "must rise"),
    "too few rates": ("bytes_s = [400e6, 900e6]", "bytes_s = [400e6]", 6, "as many"),
    "dead disk": ("bytes_s = [20e6]", "bytes_s = [0]", 10, "above zero"),
    "disk twice": ('name = "old"', 'name = "ssd"', 10, "described twice"),
    "wrong shape": ('root = "core"', 'shape = "ring"', 1, "shape"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_named_with_its_line(case: str) -> None:
    right, wrong, line, words = MISTAKES[case]
    assert TWO_RACKS.count(right) == 1
    with pytest.raises(InvalidTopology) as raised:
        parse_toml(TWO_RACKS.replace(right, wrong))
    assert raised.value.message.startswith(f"line {line}: "), raised.value.message
    assert words in raised.value.message


def test_a_cycle_in_what_claims_to_be_a_tree_is_named_by_the_link_that_closes_it() -> None:
    closing = TWO_RACKS + '[[link]]\nbetween = ["/rack-1", "/rack-2"]\n'
    with pytest.raises(InvalidTopology, match=r"^line 35: link /rack-1 - /rack-2 closes a cycle"):
        parse_toml(closing)
    assert not parse_toml('shape = "mesh"\n' + closing).is_tree


def test_a_link_described_twice_is_refused_even_in_a_mesh() -> None:
    text = 'shape = "mesh"\n' + TWO_RACKS + '[[link]]\nbetween = ["core", "/rack-1"]\n'
    with pytest.raises(InvalidTopology, match=r"^line 36: .*described twice, first in line 18"):
        parse_toml(text)


def test_a_link_to_nobody_is_refused() -> None:
    with pytest.raises(InvalidTopology, match=r"^line 35: there is no switch n8"):
        parse_toml(TWO_RACKS + '[[link]]\nbetween = ["core", "n8"]\n')


def test_a_network_without_a_switch_is_none() -> None:
    with pytest.raises(InvalidTopology, match="at least one"):
        parse_toml("")


def test_broken_toml_is_named_with_its_line() -> None:
    with pytest.raises(InvalidTopology, match="at line 2"):
        parse_toml('[[switch]]\nname = "core\n')


@given(
    st.text(alphabet='[]="abn1\n, {}.', max_size=60)
    | st.sampled_from([wrong for _, wrong, _, _ in MISTAKES.values()])
)
def test_any_text_is_a_topology_or_a_named_mistake(text: str) -> None:
    for candidate in (text, TWO_RACKS + text):
        with suppress(InvalidTopology):
            assert parse_toml(candidate).switches


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    good, bad, binary = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "binary.toml"
    good.write_text(TWO_RACKS)
    bad.write_text(TWO_RACKS.replace("5e9", "0"))
    binary.write_bytes(b"\xff\xfe")
    assert load_topology(good) == parse_toml(TWO_RACKS)
    with pytest.raises(InvalidTopology, match=r"bad\.toml: line 18: "):
        load_topology(bad)
    with pytest.raises(InvalidTopology, match=r"binary\.toml: not UTF-8"):
        load_topology(binary)
    with pytest.raises(InvalidTopology, match=r"absent\.toml: No such file"):
        load_topology(tmp_path / "absent.toml")
