"""Chunks that readers may ask for although the chunk map lacks them: being published, or just freed. Pure.

Readers see a commit at once, but the event loop adds its chunks to the chunk map a moment later. So chunks are
announced here, with their receipts, before their commit is requested, and until the map has them.

Readers may have a file open when it is replaced or deleted. So the replicas of its chunks stay for
`freed_chunks_kept_s` and can be found here, but are not repaired. A restarted coordinator has forgotten them: then
they are unreferenced, and are deleted when they are below the GC floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import Replica, WrittenChunk

freed_chunks_kept_max: Final = 200_000


@dataclass(slots=True)
class _Announced:
    """The datanodes that gave receipts for a chunk, and how many completions under way name the chunk."""

    holders: tuple[NodeId, ...]
    completions: int


@dataclass(slots=True)
class _Freed:
    """A freed chunk. `holders` have good replicas, `corrupt` bad ones; all of them will be dropped."""

    freed_s: float
    replica: Replica
    holders: list[NodeId]
    corrupt: tuple[NodeId, ...]


class TransientChunks:
    """The announced and the freed chunks. `Cluster` frees chunks; `publishing` is called around completions.

    A freed chunk is not in the chunk map. It stays here until `take_due` or `take_excess` returns its replicas.
    """

    def __init__(self) -> None:
        self._announced: dict[ChunkId, _Announced] = {}
        #: In the order in which they were freed.
        self._freed: dict[ChunkId, _Freed] = {}

    @property
    def freed_count(self) -> int:
        """The number of freed chunks that are still kept."""
        return len(self._freed)

    def holders(self, chunk: ChunkId) -> Sequence[NodeId]:
        """Return the datanodes that have a good replica of an announced or freed chunk."""
        announced = self._announced.get(chunk)
        if announced is not None:
            return announced.holders
        freed = self._freed.get(chunk)
        return () if freed is None else freed.holders

    # -- chunks about to be published --------------------------------------------------------------

    @contextmanager
    def publishing(self, written: Sequence[WrittenChunk]) -> Iterator[None]:
        """Announce chunks with verified receipts. The context lasts until the commit is taken in or refused."""
        for each in written:
            announced = self._announced.get(each.chunk)
            if announced is None:
                holders = tuple(receipt.node for receipt in each.receipts)
                self._announced[each.chunk] = _Announced(holders, 1)
            else:
                announced.completions += 1
        try:
            yield
        finally:
            for each in written:
                announced = self._announced[each.chunk]
                announced.completions -= 1
                if not announced.completions:
                    del self._announced[each.chunk]

    # -- chunks that were freed --------------------------------------------------------------------

    def free(self, now_s: float, replica: Replica, holders: Iterable[NodeId], corrupt: tuple[NodeId, ...]) -> None:
        """Keep a chunk that no file refers to any more, until `take_due` or `take_excess` returns it."""
        self._freed[replica.chunk] = _Freed(now_s, replica, list(holders), corrupt)

    def add_replica(self, node: NodeId, chunk: ChunkId) -> bool:
        """Note that a datanode reports a replica. Return whether its chunk is a freed one."""
        freed = self._freed.get(chunk)
        if freed is None:
            return False
        if node not in freed.holders and node not in freed.corrupt:
            freed.holders.append(node)
        return True

    def remove_replica(self, node: NodeId, chunk: ChunkId) -> None:
        """Note that a datanode has no replica of a chunk, which need not be a freed one."""
        freed = self._freed.get(chunk)
        if freed is not None:
            freed.holders = [each for each in freed.holders if each != node]
            freed.corrupt = tuple(each for each in freed.corrupt if each != node)

    def mark_corrupt(self, node: NodeId, chunk: ChunkId) -> bool:
        """Note that a datanode has a bad replica. Return whether its chunk is a freed one."""
        freed = self._freed.get(chunk)
        if freed is not None and node in freed.holders:
            freed.holders.remove(node)
            freed.corrupt += (node,)
        return freed is not None

    def keeps(self, node: NodeId, chunk: ChunkId) -> bool:
        """Return whether the chunk is a freed one and the datanode has a replica of it."""
        freed = self._freed.get(chunk)
        return freed is not None and (node in freed.holders or node in freed.corrupt)

    def freed_s(self, chunk: ChunkId) -> float | None:
        """Return when a chunk was freed; None if it is not kept as a freed one."""
        freed = self._freed.get(chunk)
        return None if freed is None else freed.freed_s

    def nodes(self, chunk: ChunkId) -> list[NodeId]:
        """Return the datanodes that have a replica, good or bad, of a freed chunk."""
        freed = self._freed.get(chunk)
        return [] if freed is None else [*freed.holders, *freed.corrupt]

    def take_due(self, now_s: float) -> dict[NodeId, list[Replica]]:
        """Forget the chunks that were kept long enough, and return their replicas by datanode."""
        due = 0
        for freed in self._freed.values():
            if now_s - freed.freed_s < freed_chunks_kept_s:
                break
            due += 1
        return self._take_first(due)

    def take_excess(self) -> dict[NodeId, list[Replica]]:
        """Forget the oldest chunks if too many are kept, and return their replicas by datanode."""
        return self._take_first(len(self._freed) - freed_chunks_kept_max)

    def _take_first(self, count: int) -> dict[NodeId, list[Replica]]:
        doomed: dict[NodeId, list[Replica]] = {}
        for _ in range(count):
            freed = self._freed.pop(next(iter(self._freed)))
            for node in (*freed.holders, *freed.corrupt):
                doomed.setdefault(node, []).append(freed.replica)
        return doomed
