"""Networks for several tests."""

from __future__ import annotations

import pytest
from support.paper_networks import FIGURE_5

from peacefs.topology.model import Topology
from peacefs.topology.toml_file import parse_toml

LEAF_AND_SPINE = """
shape = "mesh"
root = "spine-1"

[[switch]]
name = "spine-1"
[[switch]]
name = "spine-2"
[[switch]]
name = "/leaf-1"
uplink = "spine-1"
bytes_s = 1e9
[[switch]]
name = "/leaf-2"
uplink = "spine-1"
bytes_s = 1e9

[[servers]]
rack = "/leaf-1"
names = ["a", "b"]
[[servers]]
rack = "/leaf-2"
names = ["c", "d"]

[[link]]
between = ["/leaf-1", "spine-2"]
bytes_s = 2e9
[[link]]
between = ["/leaf-2", "spine-2"]
bytes_s = 2e9
[[link]]   # the second network card of d
between = ["/leaf-1", "d"]
cost = 3
"""


@pytest.fixture
def figure_5() -> Topology:
    """Return the four servers and two switches of the paper's Figure 5."""
    return parse_toml(FIGURE_5)


@pytest.fixture
def leaf_and_spine() -> Topology:
    """Return two leaves, two spines, and one server with two network cards: several paths everywhere."""
    return parse_toml(LEAF_AND_SPINE)
