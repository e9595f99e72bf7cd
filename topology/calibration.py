"""From rates to numbers of concurrent streams: what a node and a link can carry at their best.

A disk is fastest at some number of writers (two on the paper's disks, Table 8) and slower with more. Where the
network card and not the disk is the limit, one stream more than that keeps the card busy while others start
and end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median

from .model import Server, Topology
from .routes import Hop

#: A node slower than this share of the median gets no replicas: it would hold up every pipeline it is in.
SLOW_NODE_FRACTION = 0.4

NETWORK_BOUND_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """The capacities of the links and servers of one topology.

    `slots`: incoming streams a server; 0 where it is too slow to be of use.
    `bytes_s`: what a server stores at that many streams.
    `stream_bytes_s`: what one stream gets when all slots of a typical server are taken.
    `link_streams`: concurrent streams on each switch link, by direction.
    `network_bound`: a typical server's network card is slower than its disk.
    """

    slots: Mapping[str, int]
    bytes_s: Mapping[str, float]
    stream_bytes_s: float
    link_streams: Mapping[Hop, int]
    network_bound: bool


def calibrate(topology: Topology) -> Calibration:
    """Works from the rates that the topology states, never from rates seen under load: those lie."""
    servers = topology.servers.values()
    bytes_s = {server.name: _stores(topology, server) for server in servers}
    typical = median(bytes_s.values()) if bytes_s else 0.0
    useful = [server for server in servers if bytes_s[server.name] >= SLOW_NODE_FRACTION * typical]
    slots = {server.name: 0 for server in servers}
    slots |= {server.name: _slots(topology, server) for server in useful}
    shares = [bytes_s[server.name] / slots[server.name] for server in useful]
    stream_bytes_s = median(shares) if shares else topology.defaults.disk.best_rate
    return Calibration(
        slots=slots,
        bytes_s=bytes_s,
        stream_bytes_s=stream_bytes_s,
        link_streams=_link_streams(topology, stream_bytes_s),
        network_bound=sum(_is_network_bound(topology, server) for server in useful) * 2 > len(useful),
    )


def _is_network_bound(topology: Topology, server: Server) -> bool:
    return topology.network_bytes_s(server.name) < server.disk.best_rate


def _stores(topology: Topology, server: Server) -> float:
    return min(topology.network_bytes_s(server.name), server.disk.best_rate)


def _slots(topology: Topology, server: Server) -> int:
    return NETWORK_BOUND_SLOTS if _is_network_bound(topology, server) else server.disk.best_streams


def _link_streams(topology: Topology, stream_bytes_s: float) -> dict[Hop, int]:
    streams: dict[Hop, int] = {}
    for link in topology.switch_links():
        carries = max(1, ceil(link.bytes_s / stream_bytes_s))
        streams[link.a, link.b] = streams[link.b, link.a] = carries
    return streams
