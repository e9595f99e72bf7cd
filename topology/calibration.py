"""Computes how many concurrent streams a server and a link should carry, from their rates.

A disk is fastest with a certain number of writers (two on the paper's disks, Table 8) and slower with more. If the
network card is slower than the disk, one more stream keeps the card busy while other streams start and end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median

from .model import Server, Topology
from .routes import Hop

#: A node slower than this share of the median gets no replicas, because it would slow down each of its pipelines.
SLOW_NODE_FRACTION = 0.4

NETWORK_BOUND_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """The capacities of the servers and links of one topology.

    `slots`: concurrent incoming streams per server; 0 for a server that is too slow.
    `bytes_s`: the rate at which a server stores data with that many streams.
    `stream_bytes_s`: the rate of one stream when all slots of a typical server are used.
    `link_streams`: concurrent streams on each switch link, by direction.
    `network_bound`: True if a typical server's network card is slower than its disk.
    """

    slots: Mapping[str, int]
    bytes_s: Mapping[str, float]
    stream_bytes_s: float
    link_streams: Mapping[Hop, int]
    network_bound: bool


def calibrate(topology: Topology) -> Calibration:
    """Compute capacities from the rates in the topology. Rates observed under load would be misleading."""
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
