"""Chunks that readers may know of while the chunk map does not: being published, or freed a moment ago. Pure.

Readers see a commit as soon as it is made; the chunk map hears of it a moment later, when the event loop comes to
it. So a chunk is announced here, with its receipts, before its commit is asked for, until the map has taken it in.

A file that is replaced or deleted frees its chunks while readers may have it open. So their replicas stay for
`freed_chunks_kept_s`, and can be found here, though nobody repairs them. A coordinator that restarts has
forgotten them: datanodes hold them then for no file, and they go when they are below the floor.
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
    """The datanodes that gave receipts, and the number of completions under way that name the chunk."""

    holders: tuple[NodeId, ...]
    completions: int


@dataclass(slots=True)
class _Freed:
    """A chunk that a file referred to. `holders` have good replicas, `corrupt` bad ones: all are to be dropped."""

    freed_s: float
    replica: Replica
    holders: list[NodeId]
    corrupt: tuple[NodeId, ...]


class TransientChunks:
    """Belongs to the cluster, which decides what the chunk map knows."""

    def __init__(self) -> None:
        self._announced: dict[ChunkId, _Announced] = {}
        #: Longest ago first.
        self._freed: dict[ChunkId, _Freed] = {}

    @property
    def freed_count(self) -> int:
        """Return how many freed chunks are still kept."""
        return len(self._freed)

    def holders(self, chunk: ChunkId) -> Sequence[NodeId]:
        """Return who has a good replica, as far as is known here."""
        announced = self._announced.get(chunk)
        if announced is not None:
            return announced.holders
        freed = self._freed.get(chunk)
        return () if freed is None else freed.holders

    # -- chunks about to be published --------------------------------------------------------------

    @contextmanager
    def publishing(self, written: Sequence[WrittenChunk]) -> Iterator[None]:
        """Announce chunks whose receipts have been verified, until their commit was taken in or refused."""
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
        """Keep a chunk that no file refers to any more; see `take_due` and `take_excess`."""
        self._freed[replica.chunk] = _Freed(now_s, replica, list(holders), corrupt)

    def add_replica(self, node: NodeId, chunk: ChunkId) -> bool:
        """Take note that a datanode holds a replica. Return whether the chunk is one that was freed."""
        freed = self._freed.get(chunk)
        if freed is None:
            return False
        if node not in freed.holders and node not in freed.corrupt:
            freed.holders.append(node)
        return True

    def remove_replica(self, node: NodeId, chunk: ChunkId) -> None:
        """Take note that a datanode has no replica of it."""
        freed = self._freed.get(chunk)
        if freed is not None:
            freed.holders = [each for each in freed.holders if each != node]
            freed.corrupt = tuple(each for each in freed.corrupt if each != node)

    def mark_corrupt(self, node: NodeId, chunk: ChunkId) -> bool:
        """Take note that a datanode has a bad replica of it. Return whether the chunk is one that was freed."""
        freed = self._freed.get(chunk)
        if freed is not None and node in freed.holders:
            freed.holders.remove(node)
            freed.corrupt += (node,)
        return freed is not None

    def keeps(self, node: NodeId, chunk: ChunkId) -> bool:
        """Return whether a datanode has a replica of a chunk that was freed."""
        freed = self._freed.get(chunk)
        return freed is not None and (node in freed.holders or node in freed.corrupt)

    def freed_s(self, chunk: ChunkId) -> float | None:
        """Return when a chunk was freed, if it was and is still kept."""
        freed = self._freed.get(chunk)
        return None if freed is None else freed.freed_s

    def nodes(self, chunk: ChunkId) -> list[NodeId]:
        """Return who has a replica, good or bad, of a chunk that was freed."""
        freed = self._freed.get(chunk)
        return [] if freed is None else [*freed.holders, *freed.corrupt]

    def take_due(self, now_s: float) -> dict[NodeId, list[Replica]]:
        """Return what was kept for long enough, by datanode, and forget it."""
        due = 0
        for freed in self._freed.values():
            if now_s - freed.freed_s < freed_chunks_kept_s:
                break
            due += 1
        return self._take_first(due)

    def take_excess(self) -> dict[NodeId, list[Replica]]:
        """The same for what was freed longest ago when too many are kept."""
        return self._take_first(len(self._freed) - freed_chunks_kept_max)

    def _take_first(self, count: int) -> dict[NodeId, list[Replica]]:
        doomed: dict[NodeId, list[Replica]] = {}
        for _ in range(count):
            freed = self._freed.pop(next(iter(self._freed)))
            for node in (*freed.holders, *freed.corrupt):
                doomed.setdefault(node, []).append(freed.replica)
        return doomed
