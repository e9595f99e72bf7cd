"""The lane of small chunks: no slots, no tokens, no waiting. It only counts bytes.

A chunk of a few hundred kilobytes holds a disk or a link for milliseconds; to make it wait for a slot would
cost more than it ever takes from anyone.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from peacefs.topology.model import Topology

from .ledger import Grant, WriteSet
from .random_chains import RandomChains


class SmallLane:
    """Draw two random chains and take the one whose busiest node has fewer small bytes in flight."""

    def __init__(self, topology: Topology, rng: Random, *, writer_holds_replica: bool) -> None:
        self._rng = rng
        self._writer_holds_replica = writer_holds_replica
        self._bytes: Counter[str] = Counter()
        self.use(topology)

    def use(self, topology: Topology) -> None:
        """From now on the network is this."""
        self._chains = RandomChains(topology, self._rng, writer_holds_replica=self._writer_holds_replica)

    def place(self, write_set: WriteSet, exclude: frozenset[str]) -> list[str]:
        """Nodes in pipeline order; none if there are none."""
        drawn = [self._chains.draw(write_set.writer, write_set.replication, exclude) for _ in range(2)]
        return min(drawn, key=lambda nodes: max((self._bytes[node] for node in nodes), default=0))

    def reserve(self, grant: Grant) -> None:
        """Counts the grant's bytes."""
        for node in grant.chain:
            self._bytes[node] += grant.chunk_bytes

    def give_back(self, grant: Grant) -> None:
        """Counts them no more."""
        for node in grant.chain:
            self._bytes[node] -= grant.chunk_bytes
            if not self._bytes[node]:
                del self._bytes[node]
