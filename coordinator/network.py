"""The network as the coordinator knows it: a tree of the racks that datanodes give when they register.

Nobody told it rates, so links and disks have the default ones. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from peacefs.protocol.errors import InvalidTopology
from peacefs.protocol.ids import NodeId
from peacefs.topology.model import Defaults, Topology
from peacefs.topology.rack_table import parse_rack, tree_of_racks
from peacefs.topology.routes import Hop, Routes

from .membership import Node

#: Where a datanode stands whose rack is no path: what Hadoop calls it.
DEFAULT_RACK = "/default-rack"


def racks_of(nodes: Iterable[Node]) -> dict[NodeId, str]:
    """Each datanode's rack in its one spelling."""
    return {node.id: _spelled(node.rack) for node in nodes}


def _spelled(rack: str) -> str:
    try:
        return parse_rack(rack)
    except InvalidTopology:
        return DEFAULT_RACK


def live_topology(nodes: Iterable[Node]) -> Topology:
    """The network of these datanodes; their ids are the servers' names."""
    return tree_of_racks(racks_of(nodes), Defaults())


@dataclass(frozen=True)
class NetworkLoad:
    """How many chunks are on their way: to each server, and over each link in each direction."""

    servers: Counter[NodeId] = field(default_factory=Counter)
    links: Counter[Hop] = field(default_factory=Counter)


def load_of(topology: Topology, pipelines: Iterable[Sequence[NodeId]]) -> NetworkLoad:
    """What these pipelines use. Their writers' own links are not known; of nodes that have gone nothing is
    counted. Of equally cheap ways the first is taken."""
    routes, load = Routes(topology), NetworkLoad()
    for pipeline in pipelines:
        nodes = [topology.servers[node] for node in pipeline if node in topology.servers]
        load.servers.update(node.name for node in nodes)
        load.links.update((node.rack, node.name) for node in nodes)
        for sender, receiver in pairwise(nodes):
            load.links[sender.name, sender.rack] += 1
            load.links.update(routes.between_racks(sender.rack, receiver.rack)[0])
    return load
