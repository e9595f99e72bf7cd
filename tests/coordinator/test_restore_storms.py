"""Many readers of one checkpoint at once, as after a loss of machines, compared with a lower bound.

Each chunk has three random holders; a read takes a second. At most two reads run at a datanode, and four for a
reader. So no schedule ends before (all reads / two for each datanode), nor before (chunks / four).
"""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from random import Random
from statistics import median

import pytest
from support.long_runs import often

from peacefs.coordinator.scheduling.read_scheduler import ReadRequest, RecoveryReads

NODES, AT_NODE, AT_ONCE = 16, 2, 4
READERS, CHUNKS = 16, 40
BOUND_S = max(READERS * CHUNKS / (AT_NODE * NODES), CHUNKS / AT_ONCE)

SEEDS = range(often(6, 100))


class Storm:
    """Readers that all read all chunks. They state their reads when a read ends or a grant arrives."""

    def __init__(self, rng: Random, readers: int, chunks: int) -> None:
        nodes = [f"n{number}" for number in range(NODES)]
        self._holders = {chunk: rng.sample(nodes, 3) for chunk in range(chunks)}
        self._reads = RecoveryReads(lambda _node: True)
        self._left = {f"r{number}": dict.fromkeys(range(chunks)) for number in range(readers)}
        self._holding: dict[str, dict[int, str]] = {name: {} for name in self._left}
        self._ends: list[tuple[float, str, int]] = []
        self._statements = 0
        self._now_s = 0.0
        self.done_s: dict[str, float] = {}
        #: Which replicas of each chunk were read, and by how many.
        self.places: dict[int, set[str]] = {}

    def run(self) -> None:
        for name in self._left:
            self._state(name)
        while self._ends:
            self._now_s, name, chunk = heappop(self._ends)
            del self._left[name][chunk], self._holding[name][chunk]
            if not self._left[name]:
                self.done_s[name] = self._now_s
            self._state(name)
        assert not any(self._left.values())

    def _state(self, name: str) -> None:
        self._statements += 1
        holding = self._holding[name]
        wanted = {chunk: self._holders[chunk] for chunk in self._left[name] if chunk not in holding}
        request = ReadRequest(name, self._statements, wanted, dict(holding), AT_ONCE)
        for served in {name, *self._reads.state(self._now_s, request)}:
            for chunk, node in self._reads.grants(served).items():
                if chunk not in self._holding[served]:
                    self._holding[served][chunk] = node
                    self.places.setdefault(chunk, set()).add(node)
                    heappush(self._ends, (self._now_s + 1.0, served, chunk))
        at_node = [node for each in self._holding.values() for node in each.values()]
        assert all(at_node.count(node) <= AT_NODE for node in at_node)


@cache
def stormed(seed: int) -> Storm:
    storm = Storm(Random(seed), READERS, CHUNKS)
    storm.run()
    return storm


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_ends_and_the_first_reader_takes_no_longer_than_alone(seed: int) -> None:
    print(f"seed {seed}")
    storm = stormed(seed)
    assert storm.done_s["r0"] == CHUNKS / AT_ONCE
    # Later readers of a chunk use its other replicas.
    assert all(len(nodes) >= 2 for nodes in storm.places.values())


def test_storms_end_near_the_bound() -> None:
    """The goal is a quarter over the bound. It is missed: of 100 seeds three take 1.3 times as long."""
    over = [max(stormed(seed).done_s.values()) / BOUND_S for seed in SEEDS]
    print(f"times over the bound: {over}")
    assert sum(each <= 1.25 for each in over) >= 0.95 * len(over)
    assert median(over) <= 1.2
    assert max(over) <= 1.3
