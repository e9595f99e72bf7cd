"""Clusters and loads for comparing policies. With the same seed, every policy gets the same load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from peacefs.peace.policies.ledger import WriteSet
from peacefs.topology.model import Defaults, Link, Server, Topology
from peacefs.topology.rate_curve import MB, PAPER_CLIENT, PAPER_DISK, RateCurve

from .simulate import Arrival

CHUNK_BYTES = 64 * MB
REPLICAS = 3

#: A disk that is faster than a gigabit network card, and a client that can saturate the card.
FAST_DISK = RateCurve(((1, 300.0 * MB), (4, 500.0 * MB)))
FAST_CLIENT = RateCurve(((1, 125.0 * MB),))

MakeLoad = Callable[[Topology, Random], list[Arrival]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a comparison. `mb` is the size of each set, 0 if sizes differ."""

    writers: int
    mb: int
    network: Callable[[Random], Topology]
    load: MakeLoad
    client: RateCurve = PAPER_CLIENT


# -- networks --------------------------------------------------------------------------------------


def paper_cluster(disk: RateCurve = PAPER_DISK) -> Topology:
    """Return the cluster of section 6.2: racks of 8 and 9 machines, all links of one gigabit per second."""
    names = [f"n{number:02}" for number in range(17)]
    rack_of = {name: "/rack-1" if number < 8 else "/rack-2" for number, name in enumerate(names)}
    cables = [Link(name, rack, 125.0 * MB) for name, rack in rack_of.items()]
    return Topology(
        switches=("/rack-1", "/rack-2"),
        servers={name: Server(name, rack, disk) for name, rack in rack_of.items()},
        links=(Link("/rack-1", "/rack-2", 125.0 * MB), *cables),
        root="/rack-1",
    )


def star(racks: int, per_rack: int, oversubscription: float) -> Topology:
    """Return equal racks below one switch. Uplinks are oversubscribed by this factor."""
    uplink = per_rack * 125.0 * MB / oversubscription
    topology = Topology(defaults=Defaults(switch_link_bytes_s=uplink))
    for rack in range(racks):
        topology = topology.with_switch(f"/rack-{rack:02}")
    servers = {
        f"n{rack:02}-{number:02}": f"/rack-{rack:02}" for rack in range(racks) for number in range(per_rack)
    }
    return Topology(
        switches=topology.switches,
        servers={name: Server(name, rack) for name, rack in servers.items()},
        links=(*topology.links, *(Link(name, rack, 125.0 * MB) for name, rack in servers.items())),
        defaults=topology.defaults,
    )


def one_slow_node(rng: Random) -> Topology:
    """Return the paper's cluster with one disk at a quarter of the speed."""
    topology = paper_cluster()
    slow = topology.servers[rng.choice(sorted(topology.servers))]
    return topology.with_server(slow.name, slow.rack, disk=slow.disk.scaled(0.25))


# -- loads -----------------------------------------------------------------------------------------


def write_sets(topology: Topology, rng: Random, sizes_mb: Sequence[int], at_s: Sequence[float]) -> list[Arrival]:
    """Return one set per size, with random writers. Chunk sizes have a standard deviation of 10 %."""
    writers = rng.sample(sorted(topology.servers), len(sizes_mb))
    arrivals = []
    for number, (writer, mb, when_s) in enumerate(zip(writers, sizes_mb, at_s, strict=True)):
        chunks = (round(CHUNK_BYTES * max(0.1, rng.gauss(1.0, 0.1))) for _ in range(mb * MB // CHUNK_BYTES))
        arrivals.append(Arrival(when_s, WriteSet(f"set-{number}", writer, REPLICAS, tuple(chunks))))
    return arrivals


def all_at_once(writers: int, mb: int) -> MakeLoad:
    """Return a load in which all writers start at the same moment."""
    return lambda topology, rng: write_sets(topology, rng, [mb] * writers, [0.0] * writers)


def one_after_the_other(writers: int, mb: int, mean_gap_s: float) -> MakeLoad:
    """Return a load in which writers start at random times, `mean_gap_s` apart on average."""

    def load(topology: Topology, rng: Random) -> list[Arrival]:
        at_s, now_s = [], 0.0
        for _ in range(writers):
            at_s.append(now_s)
            now_s += rng.expovariate(1 / mean_gap_s)
        return write_sets(topology, rng, [mb] * writers, at_s)

    return load


def of_mixed_size(writers: int, sizes_mb: Sequence[int]) -> MakeLoad:
    """Return a load in which all writers start at once, with random sizes."""
    return lambda topology, rng: write_sets(topology, rng, rng.choices(sizes_mb, k=writers), [0.0] * writers)


# -- scenarios -------------------------------------------------------------------------------------


def _figure10() -> list[Case]:
    return [
        Case(writers, mb, lambda _: paper_cluster(), all_at_once(writers, mb))
        for writers in (8, 16)
        for mb in (128, 256, 512)
    ]


SCENARIOS: dict[str, Callable[[], list[Case]]] = {
    "figure10": _figure10,
    "staggered": lambda: [Case(16, 256, lambda _: paper_cluster(), one_after_the_other(16, 256, 2.0))],
    "slow-node": lambda: [Case(16, 256, one_slow_node, all_at_once(16, 256))],
    "mixed": lambda: [Case(16, 0, lambda _: paper_cluster(), of_mixed_size(16, (64, 128, 256, 512, 1024)))],
    "large": lambda: [Case(200, 256, lambda _: star(10, 40, 4.0), all_at_once(200, 256))],
    "nic-bound": lambda: [
        Case(16, 512, lambda _: paper_cluster(FAST_DISK), all_at_once(16, 512), FAST_CLIENT),
        Case(40, 512, lambda _: star(4, 15, 2.0), all_at_once(40, 512), FAST_CLIENT),
    ],
}
