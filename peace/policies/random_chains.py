"""Random chains for a topology, with HDFS's default placement."""

from __future__ import annotations

from random import Random

from peacefs.topology.model import Topology

from .hdfs_placement import (
    CandidateIndex,
    PlacementRequest,
    StillCandidate,
    choose_randomly,
)

_AMPLE_BYTES = 1 << 62


class RandomChains:
    """Draws random chains for chunks.

    With `writer_holds_replica`, the writer's node is preferred, as in HDFS. Otherwise it is used only if there are
    too few other nodes.
    """

    def __init__(self, topology: Topology, rng: Random, *, writer_holds_replica: bool) -> None:
        self._rng = rng
        self._writer_holds_replica = writer_holds_replica
        self._index = CandidateIndex(
            StillCandidate(server.name, server.name, server.rack, _AMPLE_BYTES, 0)
            for server in topology.servers.values()
        )

    def draw(self, writer: str | None, replicas: int, exclude: frozenset[str]) -> list[str]:
        """Return distinct nodes in pipeline order; fewer than `replicas` only if there are not enough."""
        if writer is not None and not self._writer_holds_replica:
            by_node, without_writer = self._index.by_node, exclude | {writer}
            others = len(by_node) - sum(node in by_node for node in without_writer)
            if others >= replicas:
                exclude = without_writer
        return choose_randomly(PlacementRequest(writer, replicas, exclude), self._index, self._rng)
