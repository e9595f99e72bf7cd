"""Track chunks that datanodes hold and no file refers to: writes under way, and garbage of failed writes. Pure.

After a restore from an older backup, data written since the backup is also unreferenced. There may be millions of
chunks, so counts are maintained instead of computed by a scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.protocol.ids import ChunkId, NodeId, epoch_of
from peacefs.protocol.messages import Replica

_SLACK = 1000


class UnreferencedCounts(NamedTuple):
    """The number of unreferenced chunks, and of those written before a given epoch."""

    chunks: int
    replicas: int
    bytes: int
    chunks_of_earlier_epochs: int
    bytes_of_earlier_epochs: int


class UnreferencedChunks:
    """Unreferenced replicas by chunk and by node, with quick access to the lowest chunks.

    `ChunkMap` owns it and moves chunks in and out; `Cluster` drops what `below` returns.
    """

    def __init__(self) -> None:
        self._replicas: dict[ChunkId, dict[NodeId, Replica]] = {}
        self._of_node: dict[NodeId, set[ChunkId]] = {}
        #: Lost with their datanode, and still to be removed from the other tables by `remove_lost`.
        self._lost: dict[NodeId, set[ChunkId]] = {}
        #: A heap of all chunks in `_replicas`. It may have duplicates, and chunks that are gone.
        self._lowest: list[ChunkId] = []
        #: Chunks below the floor that were kept, with the garbage round in which they were examined.
        self._set_aside: dict[ChunkId, int] = {}
        self._chunks_of_epoch: Counter[int] = Counter()
        self._bytes_of_epoch: Counter[int] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return len(self._replicas)

    def __contains__(self, chunk: ChunkId) -> bool:
        return any(not self._is_lost(node, chunk) for node in self._replicas.get(chunk, ()))

    def of_chunk(self, chunk: ChunkId) -> dict[NodeId, Replica]:
        """Return the replicas of a chunk by datanode."""
        held = self._replicas.get(chunk, {})
        return {node: replica for node, replica in held.items() if not self._is_lost(node, chunk)}

    def is_held(self, node: NodeId, chunk: ChunkId) -> bool:
        """Return whether a datanode holds an unreferenced replica of the chunk."""
        held = self._replicas.get(chunk)
        return held is not None and node in held and not self._is_lost(node, chunk)

    def add_replica(self, node: NodeId, replica: Replica) -> None:
        """Add a replica. It replaces an earlier replica of the same chunk on the same datanode."""
        holders = self._replicas.get(replica.chunk)
        if holders is None:
            holders = self._replicas[replica.chunk] = {}
            self._push(replica.chunk)
            self._chunks_of_epoch[epoch_of(replica.chunk)] += 1
        before = holders.get(node)
        if before is None:
            self._count += 1
        elif self._is_lost(node, replica.chunk):
            self._lost[node].discard(replica.chunk)
        self._of_node.setdefault(node, set()).add(replica.chunk)
        holders[node] = replica
        self._bytes_of_epoch[epoch_of(replica.chunk)] += replica.length - (before.length if before else 0)

    def _push(self, chunk: ChunkId) -> None:
        heappush(self._lowest, chunk)
        if len(self._lowest) > 2 * len(self._replicas) + _SLACK:
            self._lowest = list(self._replicas)
            heapify(self._lowest)

    def remove_replica(self, node: NodeId, chunk: ChunkId) -> None:
        """Remove a replica. Does nothing if the datanode has none."""
        holders = self._replicas.get(chunk)
        replica = holders.pop(node, None) if holders is not None else None
        if holders is None or replica is None:
            return
        self._count -= 1
        for of_node in (self._of_node, self._lost):
            if node in of_node:
                of_node[node].discard(chunk)
        self._bytes_of_epoch[epoch_of(chunk)] -= replica.length
        if not holders:
            del self._replicas[chunk]
            self._chunks_of_epoch[epoch_of(chunk)] -= 1

    def take(self, chunk: ChunkId) -> dict[NodeId, Replica]:
        """Remove a chunk that the namespace knows now, and return its replicas by datanode."""
        if chunk not in self._replicas:
            return {}
        taken = self.of_chunk(chunk)
        for node in list(self._replicas.get(chunk, ())):
            self.remove_replica(node, chunk)
        return taken

    def remove_node(self, node: NodeId) -> None:
        """Stop counting the replicas of a datanode; `remove_lost` removes them little by little."""
        smaller, larger = sorted((self._lost.get(node, set()), self._of_node.pop(node, set())), key=len)
        larger |= smaller
        if larger:
            self._lost[node] = larger

    def remove_lost(self, limit: int) -> bool:
        """Remove up to `limit` replicas that were lost. Return whether there are more."""
        while self._lost:
            node, chunks = next(iter(self._lost.items()))
            while chunks:
                if limit == 0:
                    return True
                limit -= 1
                self.remove_replica(node, chunks.pop())
            self._lost.pop(node, None)
        return False

    def _is_lost(self, node: NodeId, chunk: ChunkId) -> bool:
        return chunk in self._lost.get(node, ())

    def below(self, garbage: Garbage, limit: int) -> Iterator[tuple[NodeId, Replica]]:
        """Return the replicas of up to `limit` garbage chunks, the lowest chunks first.

        The caller must drop them before the next call. Examines at most `limit` chunks that are kept.
        """
        taken: dict[ChunkId, None] = {}
        looks_left = limit
        while looks_left and len(taken) < limit and (chunk := self._next_below(garbage)) is not None:
            if chunk not in self._replicas or chunk in taken:
                continue
            if garbage.is_kept(chunk):
                self._set_aside[chunk] = garbage.round
                looks_left -= 1
            else:
                taken[chunk] = None
        for chunk in taken:
            heappush(self._lowest, chunk)
        return (
            (node, replica)
            for chunk in taken
            for node, replica in self._replicas[chunk].items()
            if not self._is_lost(node, chunk)
        )

    def _next_below(self, garbage: Garbage) -> ChunkId | None:
        """Take out the next chunk below the floor that this round has not examined. It may be gone already."""
        if self._lowest and self._lowest[0] < garbage.floor:
            return heappop(self._lowest)
        aside = next(iter(self._set_aside), None)
        if aside is None or self._set_aside[aside] == garbage.round:
            return None
        del self._set_aside[aside]
        return aside

    def replicas(self) -> Iterator[tuple[NodeId, Replica]]:
        """Yield all unreferenced replicas with their datanodes."""
        for chunk, holders in self._replicas.items():
            yield from ((node, replica) for node, replica in holders.items() if not self._is_lost(node, chunk))

    def counts(self, epoch: int) -> UnreferencedCounts:
        """Count all unreferenced chunks, and those written before `epoch`."""
        return UnreferencedCounts(
            chunks=len(self._replicas),
            replicas=self._count,
            bytes=self._bytes_of_epoch.total(),
            chunks_of_earlier_epochs=sum(n for of, n in self._chunks_of_epoch.items() if of < epoch),
            bytes_of_earlier_epochs=sum(n for of, n in self._bytes_of_epoch.items() if of < epoch),
        )
