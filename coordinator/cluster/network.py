"""The network as the coordinator knows it, from the administrator's description and the datanodes' registrations.

A datanode is the described server whose name is its id, its `host:data-port` or its host. The description of that
server overrides `--rack`. A datanode that is not described is accepted, too, on the rack that it gives and with
the description's defaults. Undescribed racks are added below the root. Without a description, the network is a
tree of the given racks with the default rates. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from peacefs.protocol.errors import InvalidTopology
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Register
from peacefs.topology.model import Link, Server, Topology
from peacefs.topology.rack_table import parse_rack
from peacefs.topology.routes import Hop, Routes

from .membership import Node

#: The rack of a datanode whose given rack is not a path. The name is Hadoop's.
DEFAULT_RACK = "/default-rack"


class ClusterNetwork:
    """The places of datanodes, and their links and disks."""

    def __init__(self, described: Topology | None = None) -> None:
        self._described = described or Topology()
        #: True if there is a description at all.
        self.is_described = described is not None
        #: Rises with every new description.
        self.revision = 0

    def describe(self, topology: Topology) -> None:
        self._described = topology
        self.is_described = True
        self.revision += 1

    def is_known(self, registration: Register) -> bool:
        """Return whether the description names this datanode."""
        return self._server_of(registration) is not None

    def rack_of(self, registration: Register) -> str:
        """Return the rack of a datanode, in canonical spelling."""
        server = self._server_of(registration)
        return _spelled(registration.rack) if server is None else server.rack

    def topology(self, nodes: Iterable[Node]) -> Topology:
        """Return the network of these datanodes and all described switches. The servers are named by datanode id.

        Raises InvalidTopology if a datanode has the name of a switch.
        """
        servers: dict[str, Server] = {}
        links: list[Link] = []
        grown = replace(
            self._described,
            servers={},
            links=tuple(self._described.switch_links()),
        )
        for node in nodes:
            known = self._server_of(node.registration)
            grown = grown.with_switch(node.rack)
            if known is None:
                servers[node.id] = Server(node.id, node.rack, grown.defaults.disk)
                links.append(Link(node.id, node.rack, grown.defaults.server_link_bytes_s))
            else:
                servers[node.id] = replace(known, name=node.id)
                links += (replace(link, a=node.id) for link in self._described.server_links(known.name))
        if clash := servers.keys() & set(grown.switches):
            raise InvalidTopology(f"{min(clash)} is a switch and cannot be a datanode too")
        return replace(grown, servers=servers, links=(*grown.links, *links))

    def _server_of(self, registration: Register) -> Server | None:
        servers, host = self._described.servers, registration.data_host
        names = (registration.node, f"{host}:{registration.data_port}", host)
        return next((servers[name] for name in names if name in servers), None)


def _spelled(rack: str) -> str:
    try:
        return parse_rack(rack)
    except InvalidTopology:
        return DEFAULT_RACK


@dataclass(frozen=True)
class NetworkLoad:
    """The number of chunks being transferred: to each server, and over each link in each direction."""

    servers: Counter[NodeId] = field(default_factory=Counter)
    links: Counter[Hop] = field(default_factory=Counter)


def load_of(topology: Topology, pipelines: Iterable[Sequence[NodeId]]) -> NetworkLoad:
    """Count the load of these pipelines on servers and links.

    The links of their writers are unknown, and nodes that are gone are left out. Takes the first of equal routes.
    """
    routes, load = Routes(topology), NetworkLoad()
    for pipeline in pipelines:
        nodes = [topology.servers[node] for node in pipeline if node in topology.servers]
        load.servers.update(node.name for node in nodes)
        load.links.update((node.rack, node.name) for node in nodes)
        for sender, receiver in pairwise(nodes):
            load.links[sender.name, sender.rack] += 1
            load.links.update(routes.between_racks(sender.rack, receiver.rack)[0])
    return load
