"""Decide when a started coordinator knows enough to judge replication, place chunks and report lost data. Pure.

Otherwise chunks would be taken for lost, and copied, only because their datanodes have not reported yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from peacefs.coordinator.limits import min_replication
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import startup_hold_s

from .chunk_map import ChunkMap
from .membership import Membership

# Even if most chunks are found, wait this long for expected datanodes, unless all are there.
startup_settle_s: Final = 5.0
startup_reported_fraction: Final = 0.999


class Readiness:
    """Whether the coordinator is ready: at first not, and once ready, for the rest of the epoch."""

    def __init__(self, now_s: float) -> None:
        self._started_s = now_s
        self._expected: set[NodeId] = set()
        #: True once all chunks that the namespace knows have been loaded.
        self.loaded = False
        self.settled = False

    def wait(self, now_s: float) -> None:
        """Note that all chunks are loaded, and start to wait for datanodes."""
        self._started_s = now_s
        self.loaded = True

    def expect(self, nodes: Iterable[NodeId]) -> None:
        """Wait, for a while, for these nodes, which held replicas when the metadata was written."""
        self._expected.update(nodes)

    def judge(self, now_s: float, members: Membership, chunks: ChunkMap) -> bool:
        """Return whether most chunks are found and all expected datanodes are here, or the wait has ended."""
        if self.settled:
            return True
        alive = members.alive()
        waited_s = now_s - self._started_s
        if not self.loaded or len(alive) < min_replication:
            return False
        reports_in = len(chunks) - len(chunks.missing) >= startup_reported_fraction * len(chunks)
        all_here = self._expected <= {node.id for node in alive if node.reported}
        self.settled = (reports_in and (all_here or waited_s >= startup_settle_s)) or waited_s >= startup_hold_s
        return self.settled
