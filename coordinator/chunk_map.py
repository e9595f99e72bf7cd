"""Where the replicas are: soft state, rebuilt from reports, never stored. Pure.

The namespace says which chunks exist (`know`, `forget`), datanodes say what they hold (`hold`, `drop`). What a
datanode holds and the namespace does not know is *unclaimed*: a write under way, or garbage of one that failed.
Unclaimed chunks below the floor are garbage for certain, because no token to complete them can be valid.
Replicas on a datanode that is *leaving* can be read and copied, and count for nothing else. Those on one that is
*resting* count, even while it is down, but never as the only ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import Replica

from .records import ChunkRecord, Mode


@dataclass(slots=True)
class ChunkState:
    """A chunk that the namespace knows.

    `holders` have a good replica, `corrupt` a bad one; `awaited` had a good one, are down, and are to come back.
    """

    version: int
    length: int
    replication: int
    holders: list[NodeId] = field(default_factory=list)
    corrupt: list[NodeId] = field(default_factory=list)
    awaited: list[NodeId] = field(default_factory=list)


class ChunkMap:
    """All chunks with their replicas, and the sets that repair works from."""

    def __init__(self) -> None:
        self._chunks: dict[ChunkId, ChunkState] = {}
        self._held_by: dict[NodeId, set[ChunkId]] = {}
        self._unclaimed: dict[ChunkId, dict[NodeId, Replica]] = {}
        self._leaving: set[NodeId] = set()
        self._resting: set[NodeId] = set()
        self._awaited_from: dict[NodeId, set[ChunkId]] = {}
        #: Chunks with fewer lasting replicas than wanted; those without any are `missing`, not here.
        self.under: set[ChunkId] = set()
        self.over: set[ChunkId] = set()
        self.missing: set[ChunkId] = set()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, chunk: ChunkId) -> ChunkState | None:
        return self._chunks.get(chunk)

    def held_by(self, node: NodeId) -> int:
        return len(self._held_by.get(node, ()))

    def staying(self, state: ChunkState) -> list[NodeId]:
        """The holders that are neither to leave nor to be away for a while."""
        return [node for node in state.holders if node not in self._leaving and node not in self._resting]

    def lasting(self, state: ChunkState) -> list[NodeId]:
        """Whose replicas count towards what is wanted: all but those of datanodes that are to leave."""
        return [node for node in state.holders if node not in self._leaving] + state.awaited

    def to_drain(self, node: NodeId) -> int:
        """How many of a datanode's chunks still lack the replicas elsewhere that they need before it may go."""
        needed = self._held_by.get(node, set()) & self.under
        if node in self._resting:
            return sum(not self.staying(self._chunks[chunk]) for chunk in needed)
        return len(needed)

    # -- what an operator says ---------------------------------------------------------------------

    def set_mode(self, node: NodeId, mode: Mode) -> None:
        """A datanode is to leave, to rest, or to stay. Till it goes, its replicas are as good to read as any."""
        for those, belongs in (
            (self._leaving, mode is Mode.DECOMMISSION),
            (self._resting, mode is Mode.MAINTENANCE),
        ):
            if belongs:
                those.add(node)
            else:
                those.discard(node)
        if mode is not Mode.MAINTENANCE:
            self.await_no_more(node)
        for chunk in self._held_by.get(node, ()):
            self._sort_in(chunk, self._chunks[chunk])

    def expect(self, node: NodeId, chunk: ChunkId) -> None:
        """A datanode that is away for a while is to come back with a good replica."""
        state = self._chunks[chunk]
        if node not in state.holders and node not in state.awaited:
            state.awaited.append(node)
            self._awaited_from.setdefault(node, set()).add(chunk)
            self._sort_in(chunk, state)

    def await_no_more(self, node: NodeId) -> None:
        """A datanode has come back and said what it holds, or has been away for too long."""
        for chunk in self._awaited_from.pop(node, ()):
            state = self._chunks[chunk]
            state.awaited.remove(node)
            self._sort_in(chunk, state)

    # -- what the namespace says -------------------------------------------------------------------

    def know(self, record: ChunkRecord, holders: Iterable[NodeId] = ()) -> None:
        """A chunk exists, or its wanted replication changed; `holders` gave receipts for it just now."""
        state = self._chunks.get(record.chunk)
        if state is None:
            state = self._chunks[record.chunk] = ChunkState(record.version, record.length, record.replication)
        state.replication = record.replication
        for node in holders:
            self._add(record.chunk, state, node)
        for node, replica in self._unclaimed.pop(record.chunk, {}).items():
            self.hold(node, replica)
        self._sort_in(record.chunk, state)

    def forget(self, chunk: ChunkId) -> list[NodeId]:
        """A chunk is gone from the namespace; who still holds something of it."""
        state = self._chunks.pop(chunk, None)
        for marked in (self.under, self.over, self.missing):
            marked.discard(chunk)
        if state is None:
            return []
        for node in state.holders:
            self._held_by[node].discard(chunk)
        for node in state.awaited:
            self._awaited_from[node].discard(chunk)
        return state.holders + state.corrupt

    # -- what datanodes say ------------------------------------------------------------------------

    def hold(self, node: NodeId, replica: Replica) -> bool:
        """A datanode holds a replica. False when it is stale or torn and should be dropped."""
        state = self._chunks.get(replica.chunk)
        if state is None:
            self._unclaimed.setdefault(replica.chunk, {})[node] = replica
            return True
        if replica.version < state.version or (
            replica.version == state.version and replica.length != state.length
        ):
            return False
        if replica.version > state.version:
            # A newer pipeline wrote it and its completion is not in; the old content is what counts now.
            return True
        self._add(replica.chunk, state, node)
        self._sort_in(replica.chunk, state)
        return True

    def drop(self, node: NodeId, chunk: ChunkId) -> None:
        """A datanode holds it no more."""
        unclaimed = self._unclaimed.get(chunk)
        if unclaimed is not None:
            unclaimed.pop(node, None)
            if not unclaimed:
                del self._unclaimed[chunk]
        state = self._chunks.get(chunk)
        if state is None:
            return
        if node in state.holders:
            state.holders.remove(node)
            self._held_by[node].discard(chunk)
        if node in state.corrupt:
            state.corrupt.remove(node)
        self._sort_in(chunk, state)

    def spoil(self, node: NodeId, chunk: ChunkId) -> None:
        """A datanode found its own replica to be corrupt."""
        state = self._chunks.get(chunk)
        if state is None or node in state.corrupt:
            return
        if node in state.holders:
            state.holders.remove(node)
            self._held_by[node].discard(chunk)
        state.corrupt.append(node)
        self._sort_in(chunk, state)

    def lose(self, node: NodeId) -> int:
        """A datanode is dead or registers anew: nothing that it held counts. How many replicas that were.

        What a resting one held is awaited: that is not lost.
        """
        for chunk in [chunk for chunk, nodes in self._unclaimed.items() if node in nodes]:
            self.drop(node, chunk)
        held = self._held_by.pop(node, set())
        for chunk in held:
            state = self._chunks[chunk]
            state.holders.remove(node)
            if node in self._resting:
                self.expect(node, chunk)
            self._sort_in(chunk, state)
        return 0 if node in self._resting else len(held)

    # -- what is garbage ---------------------------------------------------------------------------

    def garbage_below(self, floor: ChunkId) -> list[tuple[NodeId, Replica]]:
        """Unclaimed replicas that no completion can claim any more."""
        return [
            (node, replica)
            for chunk, nodes in self._unclaimed.items()
            if chunk < floor
            for node, replica in nodes.items()
        ]

    def unclaimed(self) -> Iterator[tuple[NodeId, Replica]]:
        """What datanodes hold and no file refers to."""
        for nodes in self._unclaimed.values():
            yield from nodes.items()

    # ----------------------------------------------------------------------------------------------

    def _add(self, chunk: ChunkId, state: ChunkState, node: NodeId) -> None:
        if node not in state.holders and node not in state.corrupt:
            state.holders.append(node)
            self._held_by.setdefault(node, set()).add(chunk)
            if node in state.awaited:
                state.awaited.remove(node)
                self._awaited_from[node].discard(chunk)

    def _sort_in(self, chunk: ChunkId, state: ChunkState) -> None:
        good = len(state.holders)
        lasting = staying = good
        if self._leaving or self._resting:
            lasting, staying = len(self.lasting(state)), len(self.staying(state))
        for marked, belongs in (
            (self.missing, good == 0),
            (self.under, good > 0 and (lasting < state.replication or staying == 0)),
            (self.over, staying > state.replication or (good > 0 and bool(state.corrupt))),
        ):
            if belongs:
                marked.add(chunk)
            else:
                marked.discard(chunk)
