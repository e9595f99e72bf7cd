"""The fast lane for small chunks: they need no slot and never wait. It only counts bytes.

A chunk of a few hundred kilobytes uses a disk or a link for milliseconds. Waiting for a slot would cost more than
it could save.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from peacefs.topology.model import Topology

from .ledger import Grant, WriteSet
from .random_chains import RandomChains


class SmallLane:
    """Draws two random chains and takes the one whose busiest node has fewer bytes of small chunks in flight."""

    def __init__(self, topology: Topology, rng: Random, *, writer_holds_replica: bool) -> None:
        self._rng = rng
        self._writer_holds_replica = writer_holds_replica
        self._bytes: Counter[str] = Counter()
        self.use(topology)

    def use(self, topology: Topology) -> None:
        self._chains = RandomChains(topology, self._rng, writer_holds_replica=self._writer_holds_replica)

    def place(self, write_set: WriteSet, exclude: frozenset[str]) -> list[str]:
        """Return nodes in pipeline order; empty if no node is possible."""
        drawn = [self._chains.draw(write_set.writer, write_set.replication, exclude) for _ in range(2)]
        return min(drawn, key=lambda nodes: max((self._bytes[node] for node in nodes), default=0))

    def reserve(self, grant: Grant) -> None:
        for node in grant.chain:
            self._bytes[node] += grant.chunk_bytes

    def give_back(self, grant: Grant) -> None:
        for node in grant.chain:
            self._bytes[node] -= grant.chunk_bytes
            if not self._bytes[node]:
                del self._bytes[node]
