"""Where the replicas are: soft state, rebuilt from reports, never stored. Pure.

The namespace says which chunks exist (`know`, `forget`), datanodes say what they hold (`hold`, `drop`). What a
datanode holds and the namespace does not know is *unclaimed*: a write under way, or garbage of one that failed.
Unclaimed chunks below the floor are garbage for certain, because no token to complete them can be valid.
Replicas on a datanode that is *leaving* can be read and copied, and count for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import Replica

from .records import ChunkRecord
from .unclaimed import Unclaimed
from .urgency import Urgency


@dataclass(slots=True)
class ChunkState:
    """A chunk that the namespace knows. `holders` have a good replica, `corrupt` a bad one."""

    version: int
    length: int
    replication: int
    holders: list[NodeId] = field(default_factory=list)
    corrupt: list[NodeId] = field(default_factory=list)


class ChunkMap:
    """All chunks with their replicas, and the sets that repair works from."""

    def __init__(self) -> None:
        self._chunks: dict[ChunkId, ChunkState] = {}
        self._held_by: dict[NodeId, set[ChunkId]] = {}
        #: Lost with their datanode and not taken out yet: see `lose`. Their holders are still named.
        self._lost: dict[NodeId, set[ChunkId]] = {}
        self._leaving: set[NodeId] = set()
        self.unclaimed = Unclaimed()
        #: Chunks with fewer lasting replicas than wanted; those without any are `missing`, not here.
        self.under = Urgency()
        self.over: set[ChunkId] = set()
        self.missing: set[ChunkId] = set()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, chunk: ChunkId) -> ChunkState | None:
        return self._chunks.get(chunk)

    def held_by(self, node: NodeId) -> int:
        return len(self._held_by.get(node, ()))

    def lasting(self, state: ChunkState) -> list[NodeId]:
        """The holders that are to stay: only their replicas count towards what is wanted."""
        return [node for node in state.holders if node not in self._leaving]

    def to_drain(self, node: NodeId) -> int:
        """How many of a datanode's chunks still lack a replica elsewhere."""
        return sum(chunk in self.under for chunk in self._held_by.get(node, ()))

    # -- what an operator says ---------------------------------------------------------------------

    def set_leaving(self, node: NodeId, *, leaving: bool) -> None:
        """A datanode is to leave, or to stay after all. Till it goes, its replicas are as good to read as any."""
        if leaving:
            self._leaving.add(node)
        else:
            self._leaving.discard(node)
        for chunk in self._held_by.get(node, ()):
            self._sort_in(chunk, self._chunks[chunk])

    # -- what the namespace says -------------------------------------------------------------------

    def know(self, record: ChunkRecord, holders: Iterable[NodeId] = ()) -> None:
        """A chunk exists, or its wanted replication changed; `holders` gave receipts for it just now."""
        state = self._chunks.get(record.chunk)
        if state is None:
            state = self._chunks[record.chunk] = ChunkState(record.version, record.length, record.replication)
        state.replication = record.replication
        for node in holders:
            self._add(record.chunk, state, node)
        for node, replica in self.unclaimed.claim(record.chunk).items():
            self.hold(node, replica)
        self._sort_in(record.chunk, state)

    def forget(self, chunk: ChunkId) -> list[NodeId]:
        """A chunk is gone from the namespace; who still holds something of it."""
        state = self._chunks.pop(chunk, None)
        self.under.discard(chunk)
        self.over.discard(chunk)
        self.missing.discard(chunk)
        if state is None:
            return []
        for node in state.holders:
            self._unlist(chunk, node)
        return state.holders + state.corrupt

    # -- what datanodes say ------------------------------------------------------------------------

    def hold(self, node: NodeId, replica: Replica) -> bool:
        """A datanode holds a replica. False when it is stale or torn and should be dropped."""
        state = self._chunks.get(replica.chunk)
        if state is None:
            self.unclaimed.hold(node, replica)
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
        self.unclaimed.drop(node, chunk)
        state = self._chunks.get(chunk)
        if state is None:
            return
        if node in state.holders:
            state.holders.remove(node)
            self._unlist(chunk, node)
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
            self._unlist(chunk, node)
        state.corrupt.append(node)
        self._sort_in(chunk, state)

    def lose(self, node: NodeId) -> int:
        """A datanode is dead or registers anew: nothing that it held counts. How many replicas that were.

        There may be millions: they are taken out by `take_out_lost`, little by little. What the datanode says
        of a chunk meanwhile counts at once.
        """
        self.unclaimed.lose(node)
        held = self._held_by.pop(node, set())
        if held:
            lost = self._lost.setdefault(node, held)
            if lost is not held:
                lost |= held
        return len(held)

    def is_lost(self, chunk: ChunkId, node: NodeId) -> bool:
        """Whether a holder of the chunk is named still, and nothing but that."""
        return chunk in self._lost.get(node, ())

    def take_out_lost(self, limit: int) -> bool:
        """Takes out up to `limit` replicas that were lost. Whether there are more."""
        while self._lost:
            node, lost = next(iter(self._lost.items()))
            while lost:
                if limit == 0:
                    return True
                limit -= 1
                chunk = lost.pop()
                state = self._chunks[chunk]
                state.holders.remove(node)
                self._sort_in(chunk, state)
            del self._lost[node]
        return False

    # ----------------------------------------------------------------------------------------------

    def _add(self, chunk: ChunkId, state: ChunkState, node: NodeId) -> None:
        if self.is_lost(chunk, node):
            self._unlist(chunk, node)
            state.holders.remove(node)
        if node not in state.holders and node not in state.corrupt:
            state.holders.append(node)
            self._held_by.setdefault(node, set()).add(chunk)

    def _unlist(self, chunk: ChunkId, node: NodeId) -> None:
        """The holder of a chunk is no longer one."""
        for of_node in (self._held_by, self._lost):
            of_node.get(node, set()).discard(chunk)

    def _sort_in(self, chunk: ChunkId, state: ChunkState) -> None:
        good = len(state.holders)
        lasting = len(self.lasting(state)) if self._leaving else good
        if good > 0 and lasting < state.replication:
            self.under.mark(chunk, good)
        else:
            self.under.discard(chunk)
        for marked, belongs in (
            (self.missing, good == 0),
            (self.over, lasting > state.replication or (good > 0 and bool(state.corrupt))),
        ):
            if belongs:
                marked.add(chunk)
            else:
                marked.discard(chunk)
