"""HDFS's policy: random placement, and as many chunks at once as each writer cares to send."""

from __future__ import annotations

from random import Random

from peacefs.topology.model import Topology

from .interface import Policy
from .ledger import Grant
from .random_chains import RandomChains


class RandomPolicy(Policy):
    """No admission control: `chunks_per_writer` chunks of each set are in flight, whatever the others do.

    `writer_holds_replica` is HDFS as it is; the paper's measurements kept the writer's disk out (footnote 6).
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
        """Nothing was reserved."""

    def _take_over(self, grant: Grant) -> None:
        """As little."""

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
