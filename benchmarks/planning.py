"""How long policies take to plan 10,000 chunks of three replicas on 1,000 nodes, and how that grows with nodes.

Aims, on one core: 0.2 s on a tree, 1 s by `flow`. Growth is measured with one chunk a node. Seconds are those of
the processor: what else the machine does should not count.
"""

from __future__ import annotations

import time
from random import Random

from peacefs.peace.comparison import POLICIES
from peacefs.peace.ledger import WriteSet
from peacefs.peace.planning import plan_rounds
from peacefs.peace.scenarios import CHUNK_BYTES, REPLICAS, star
from peacefs.topology.model import Topology

from .report import show

_AIMS_S = {"express": 0.2, "flow": 1.0}
_POLICIES = ("random", "express", "flow", "paper")

#: Racks and nodes a rack; Algorithm 1 looks for every path in the whole graph and is left out where it would
#: take minutes.
_SHAPES = ((2, 5), (5, 20), (25, 40), (100, 100))
_PAPER_NODES_MAX = 1000


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
    """Seconds, the policy's own start included, and rounds."""
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
