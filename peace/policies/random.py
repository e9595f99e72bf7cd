"""HDFS's policy: random placement without admission control."""

from __future__ import annotations

from random import Random

from peacefs.topology.model import Topology

from .interface import Policy
from .ledger import Grant
from .random_chains import RandomChains


class RandomPolicy(Policy):
    """Grants up to `chunks_per_writer` chunks of each set at once, regardless of the load.

    `writer_holds_replica` is HDFS's behaviour; the paper's measurements place no replica on the writer (footnote
    6).
    """

    def __init__(
        self, topology: Topology, rng: Random, *, chunks_per_writer: int = 4, writer_holds_replica: bool = False
    ) -> None:
        super().__init__()
        self._rng = rng
        self._chunks_per_writer = chunks_per_writer
        self._writer_holds_replica = writer_holds_replica
        self._use(topology)

    def _use(self, topology: Topology) -> None:
        self._chains = RandomChains(topology, self._rng, writer_holds_replica=self._writer_holds_replica)

    def _release(self, grant: Grant) -> None:
        """Do nothing: nothing was reserved."""

    def _take_over(self, grant: Grant) -> None:
        """Do nothing: this policy reserves nothing."""

    def _admit(self, now_s: float) -> list[Grant]:
        grants: list[Grant] = []
        for pending in self._ledger.pending():
            write_set = pending.write_set
            while pending.waiting and pending.in_flight < self._chunks_per_writer:
                nodes = self._chains.draw(write_set.writer, write_set.replication, pending.exclude)
                if not nodes:
                    break
                grants.append(self._ledger.grant(pending, nodes))
        return grants
