"""Measure how long policies take to plan 10,000 chunks of three replicas on 1,000 nodes, and how that grows.

It also measures the quality of the plans, on trees and on networks with competing paths. Aims, on one core: 0.2 s
on a tree, 1 s by `flow`. Growth is measured with one chunk per node. Seconds are processor time, so that other
work on the machine does not count.
"""

from __future__ import annotations

import time
from random import Random
from statistics import fmean

from peacefs.peace.dry_run import DryRunRequest, Task, plan_on, plan_rounds
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.simulator.comparison import POLICIES
from peacefs.peace.simulator.scenarios import CHUNK_BYTES, REPLICAS, paper_cluster, star
from peacefs.topology.model import Link, Topology
from peacefs.topology.rate_curve import MB

from .report import show

_AIMS_S = {"express": 0.2, "flow": 1.0}
_POLICIES = ("random", "express", "flow", "paper")

#: Racks, and nodes per rack. Algorithm 1 searches the whole graph for every path and is left out where it would
#: take minutes.
_SHAPES = ((2, 5), (5, 20), (25, 40), (100, 100))
_PAPER_NODES_MAX = 1000

#: Sizes of the dry runs.
_SETS = 12
_CHUNKS = 6
_SEEDS = 5


def main(*, quick: bool = False) -> None:
    racks, per_rack, chunks = (5, 20, 1000) if quick else (25, 40, 10_000)
    nodes = racks * per_rack
    topology = star(racks, per_rack, 4.0)
    show(
        "planning",
        f"{chunks} chunks x {REPLICAS} on {nodes} nodes in {racks} racks; seconds of CPU, the best of several",
        [_planned(name, topology, chunks, tries=1 if name == "paper" else 5) for name in _POLICIES],
    )
    show(
        "planning_growth",
        "One chunk a node, as nodes grow; seconds of CPU",
        [_grown(*shape) for shape in _SHAPES[: 2 if quick else 4]],
    )
    show(
        "planning_paths",
        f"Dry runs of {_SETS} sets of {_CHUNKS} chunks: rounds, the mean set's end and the last's; seconds of the "
        f"model, means of {_SEEDS} draws of writers",
        [_worth(*network, policy) for network in _networks().items() for policy in _POLICIES],
    )


def _networks() -> dict[str, Topology]:
    return {
        "tree, 8 and 9 nodes": paper_cluster(),
        "tree, 4 racks of 10, 4:1": star(4, 10, 4.0),
        "two spines, one of them shared": two_spines(),
    }


def two_spines() -> Topology:
    """Return a network where racks a and b reach rack z by x. Rack a also has its own path by y, at equal cost."""
    spines = Topology(switches=("x", "y", "a", "b", "z"), root="x")
    for rack in ("a", "b", "z"):
        for number in range(8):
            spines = spines.with_server(f"{rack}{number}", rack)
    ways = (("a", "x"), ("b", "x"), ("x", "z"), ("a", "y"), ("y", "z"))
    links = (*spines.links, *(Link(one, other, 125.0 * MB) for one, other in ways))
    return Topology(spines.switches, spines.servers, links, "x")


def _worth(network: str, topology: Topology, policy: str) -> dict[str, object]:
    plans = [plan_on(topology, Task(policy, seed, _requests(topology, seed))) for seed in range(_SEEDS)]
    ends = [
        [max(each.end_s for each in plan.assignments if each.request == n) for n in range(_SETS)] for plan in plans
    ]
    assert not any(plan.unplaced for plan in plans)
    return {
        "network": network,
        "policy": policy,
        "rounds": fmean(plan.assignments[-1].step + 1 for plan in plans),
        "mean set, s": fmean(fmean(each) for each in ends),
        "last set, s": fmean(max(each) for each in ends),
    }


def _requests(topology: Topology, seed: int) -> list[DryRunRequest]:
    writers = Random(seed).sample(sorted(topology.servers), _SETS)
    return [DryRunRequest(writer, REPLICAS, _CHUNKS) for writer in writers]


def _planned(name: str, topology: Topology, chunks: int, tries: int) -> dict[str, object]:
    took = [_plan_s(name, topology, chunks) for _ in range(tries)]
    least_s, rounds = min(took)
    aim = _AIMS_S.get(name)
    return {
        "policy": name,
        "seconds": least_s,
        "us a chunk": least_s / chunks * 1e6,
        "rounds": rounds,
        "aim, s": aim or "-",
    }


def _grown(racks: int, per_rack: int) -> dict[str, object]:
    topology, nodes = star(racks, per_rack, 4.0), racks * per_rack
    row: dict[str, object] = {"nodes": nodes}
    for name in _POLICIES:
        measured = name != "paper" or nodes <= _PAPER_NODES_MAX
        row[f"{name}, s"] = _plan_s(name, topology, nodes)[0] if measured else "-"
    return row


def _plan_s(name: str, topology: Topology, chunks: int) -> tuple[float, int]:
    """Return the seconds, including the policy's start, and the rounds."""
    servers = sorted(topology.servers)
    share, more = divmod(chunks, len(servers))
    sets = [
        WriteSet(writer, writer, REPLICAS, (CHUNK_BYTES,) * (share + (number < more)))
        for number, writer in enumerate(servers)
    ]
    begun = time.process_time()
    rounds = plan_rounds(POLICIES[name](topology, Random(0)), sets)
    elapsed = time.process_time() - begun
    assert sum(map(len, rounds)) == chunks
    return elapsed, len(rounds)


if __name__ == "__main__":
    main()
