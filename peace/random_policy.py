"""What HDFS does: random placement, and as many chunks at once as each writer cares to send."""

from __future__ import annotations

from random import Random

from peacefs.topology.model import Topology

from .ledger import Grant
from .policy import Policy
from .random_placement import Candidate, CandidateIndex, PlacementRequest, choose_randomly

_AMPLE_BYTES = 1 << 62


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
        self._index = CandidateIndex(
            Candidate(server.name, server.name, server.rack, _AMPLE_BYTES, 0)
            for server in topology.servers.values()
        )

    def _release(self, grant: Grant) -> None:
        """Nothing was reserved."""

    def _admit(self, now_s: float) -> list[Grant]:
        grants = []
        for pending in self._ledger.pending():
            while pending.waiting and pending.in_flight < self._chunks_per_writer:
                chain = self._place(pending.write_set.writer, pending.write_set.replication, pending.exclude)
                if not chain:
                    break
                grants.append(self._ledger.grant(pending, chain))
        return grants

    def _place(self, writer: str | None, replication: int, failed: frozenset[str]) -> list[str]:
        exclude = failed
        others = len(self._index.all) - (writer in self._index.by_node)
        if writer is not None and not self._writer_holds_replica and others >= replication:
            exclude = failed | {writer}
        return choose_randomly(PlacementRequest(writer, replication, exclude), self._index, self._rng)
