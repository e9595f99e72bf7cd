"""The network as the coordinator knows it: as an administrator describes it, and as datanodes say at registration.

A datanode is the described server that bears its id, its `host:data-port` or its host. What the description says
of that server holds, whatever `--rack` says. A datanode that is not described is taken in all the same, on the
rack that it gives, with the description's defaults; racks that nobody described grow below the root. Without a
description everything is so: a tree of racks with the default rates. Pure.
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

#: The rack of a datanode whose own is no path: Hadoop's name for it.
DEFAULT_RACK = "/default-rack"


class ClusterNetwork:
    """The places of datanodes, and their links and disks."""

    def __init__(self, described: Topology | None = None) -> None:
        self._described = described or Topology()
        #: True when there is a description at all.
        self.is_described = described is not None
        #: Rises with every new description.
        self.revision = 0

    def describe(self, topology: Topology) -> None:
        """From now on the description is this."""
        self._described = topology
        self.is_described = True
        self.revision += 1

    def is_known(self, registration: Register) -> bool:
        """Return whether the description names this datanode."""
        return self._server_of(registration) is not None

    def rack_of(self, registration: Register) -> str:
        """The rack of a datanode, in its one spelling."""
        server = self._server_of(registration)
        return _spelled(registration.rack) if server is None else server.rack

    def topology(self, nodes: Iterable[Node]) -> Topology:
        """The network of these datanodes; their ids are the servers' names. All described switches are in it.

        Raises InvalidTopology when a datanode is called as a switch is.
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
    """The number of chunks on their way: to each server, and over each link in each direction."""

    servers: Counter[NodeId] = field(default_factory=Counter)
    links: Counter[Hop] = field(default_factory=Counter)


def load_of(topology: Topology, pipelines: Iterable[Sequence[NodeId]]) -> NetworkLoad:
    """Count the load of these pipelines on the links. Their writers' own links are unknown, and nodes that have
    gone are left out. Among equally cheap ways the first is taken.
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
