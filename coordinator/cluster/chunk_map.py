"""Locations of replicas: soft state, rebuilt from reports, never stored. Pure.

The namespace says which chunks exist (`add_chunk`, `forget`), datanodes say what they hold (`add_replica`,
`remove_replica`). The table in `replica_states` says how an event changes a replica's state; the lists here imply
the state. A replica of a chunk that the namespace does not know is *unreferenced*: a write under way, or garbage
of a failed write. Unreferenced chunks below the GC floor are certainly garbage, because no token to complete them
can be valid. Replicas on a *decommissioning* datanode can be read and copied, but do not count towards the
replication. Replicas on a datanode *in maintenance* count even while it is down, if there is another one besides.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from peacefs.coordinator.limits import lost_replicas_per_turn
from peacefs.coordinator.metadata.model import ChunkRecord, Mode
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import Replica

from .repair_queue import LowRedundancyQueue
from .replica_states import TRANSITIONS, ReplicaEvent, ReplicaState
from .unconfirmed_replicas import UnconfirmedReplicas
from .unreferenced_chunks import UnreferencedChunks

# Chunks with the same holders share one tuple. With very many datanodes there may be too many tuples to remember.
holder_tuples_max: Final = 100_000


_MISSING = object()
# Aliases, because they are looked up for every reported replica.
_ABSENT, _UNCONFIRMED, _LIVE = ReplicaState.ABSENT, ReplicaState.UNCONFIRMED, ReplicaState.LIVE
_CORRUPT, _LOST, _AWAITED = ReplicaState.CORRUPT, ReplicaState.LOST, ReplicaState.AWAITED
_ATTESTED, _REFERENCED = ReplicaEvent.ATTESTED, ReplicaEvent.REFERENCED
_REPORTED, _REPORTED_NEWER = ReplicaEvent.REPORTED, ReplicaEvent.REPORTED_NEWER
_REPORTED_UNREFERENCED = ReplicaEvent.REPORTED_UNREFERENCED


class ChunkState(msgspec.Struct, gc=False):
    """A chunk that the namespace knows.

    `holders` have a good replica, `corrupt` a bad one. `awaited` had a good one, are down, and should come back.

    There may be many millions of states, so they save memory. All sets hold the id object in `chunk`, not the
    equal ones that arrive in messages. All chunks with the same holders share one tuple. States are part of no
    reference cycle, so Python's garbage collector need not track them.
    """

    chunk: ChunkId
    version: int
    length: int
    replication: int
    holders: tuple[NodeId, ...] = ()
    corrupt: tuple[NodeId, ...] = ()
    awaited: tuple[NodeId, ...] = ()


class ChunkMap:
    """All chunks with their replicas, and the sets that repair works from: `under`, `over` and `missing`.

    `Cluster` tells it what the namespace and datanodes say. Each change of a replica updates these sets at once. A
    change of a whole datanode is applied little by little, by `remove_lost`.
    """

    def __init__(self) -> None:
        self._chunks: dict[ChunkId, ChunkState] = {}
        self._held_by: dict[NodeId, set[ChunkId]] = {}
        #: Lost with their datanode, but still listed in `holders`: see `remove_node`.
        self._lost: dict[NodeId, set[ChunkId]] = {}
        self._decommissioning: set[NodeId] = set()
        self._in_maintenance: set[NodeId] = set()
        #: Like `_lost`, for datanodes that went away in maintenance: these chunks will be listed as awaited.
        self._to_await: dict[NodeId, set[ChunkId]] = {}
        self._awaited_from: dict[NodeId, set[ChunkId]] = {}
        #: No longer awaited, but still listed in `awaited`: see `await_no_more`.
        self._awaited_no_more: dict[NodeId, set[ChunkId]] = {}
        #: Chunks to reindex because the mode of their datanode has changed.
        self._to_reindex: dict[NodeId, list[ChunkId]] = {}
        self._tuples: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}
        self.unreferenced = UnreferencedChunks()
        #: Replicas that were reported by others than their datanode.
        self.unconfirmed = UnconfirmedReplicas()
        #: Chunks with fewer lasting replicas than wanted. Chunks without any good replica are only in `missing`.
        self.under = LowRedundancyQueue()
        #: Chunks with surplus or corrupt replicas, those first that were examined longest ago.
        self.over: dict[ChunkId, None] = {}
        self.missing: set[ChunkId] = set()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, chunk: ChunkId) -> ChunkState | None:
        return self._chunks.get(chunk)

    def replica_state(self, state: ChunkState, node: NodeId) -> ReplicaState:
        """Return the state of the chunk's replica on a datanode, derived from the lists that name it."""
        if node in state.holders:
            if (self._lost or self._to_await) and self.is_lost(state.chunk, node):
                return _LOST if state.chunk in self._lost.get(node, ()) else _AWAITED
            return _UNCONFIRMED if self.unconfirmed.has(node, state.chunk) else _LIVE
        if state.corrupt and node in state.corrupt:
            return _CORRUPT
        if state.awaited and node in state.awaited:
            return _LOST if state.chunk in self._awaited_no_more.get(node, ()) else _AWAITED
        return _ABSENT

    def held_by(self, node: NodeId) -> int:
        return len(self._held_by.get(node, ()))

    def chunks_of(self, node: NodeId) -> list[ChunkId]:
        """Return a copy of the set of chunks of which a datanode holds a good replica. Takes 10 ms per million."""
        return list(self._held_by.get(node, ()))

    def staying(self, state: ChunkState) -> list[NodeId]:
        """Return the holders that are neither decommissioning nor in maintenance."""
        return [
            node
            for node in state.holders
            if node not in self._decommissioning and node not in self._in_maintenance
        ]

    def lasting(self, state: ChunkState) -> list[NodeId]:
        """Return the nodes that count towards the replication: awaited ones, and holders not decommissioning."""
        return [node for node in state.holders if node not in self._decommissioning] + list(state.awaited)

    def to_drain(self, node: NodeId) -> int:
        """Return how many of a datanode's chunks still lack replicas elsewhere, so that it must stay."""
        return sum(1 for _chunk in self._to_drain(node))

    def without_a_place(self, node: NodeId, places: int) -> int:
        """Return how many of the chunks that `to_drain` counts want more replicas than there are places."""
        return sum(1 for chunk in self._to_drain(node) if self._chunks[chunk].replication > places)

    def is_drained(self, node: NodeId) -> bool:
        """Return whether `to_drain` would be 0. Stops at the first chunk found."""
        return next(self._to_drain(node), None) is None

    def _to_drain(self, node: NodeId) -> Iterator[ChunkId]:
        # Walk the smaller set: in a healthy cluster few chunks lack replicas.
        held = self._held_by.get(node, set())
        smaller, larger = (self.under, held) if len(self.under) < len(held) else (held, self.under)
        for chunk in smaller:
            if chunk in larger and not (node in self._in_maintenance and self.staying(self._chunks[chunk])):
                yield chunk

    # -- what an operator says ---------------------------------------------------------------------

    def set_mode(self, node: NodeId, mode: Mode) -> int:
        """Set a datanode's mode. Return how many replicas were awaited from it and are not any more.

        Its first chunks are reindexed at once, the others later by `remove_lost`.
        """
        for those, belongs in (
            (self._decommissioning, mode is Mode.DECOMMISSION),
            (self._in_maintenance, mode is Mode.MAINTENANCE),
        ):
            if belongs:
                those.add(node)
            else:
                those.discard(node)
        if held := self._held_by.get(node):
            self._to_reindex[node] = list(held)
            self._reindex_changed(lost_replicas_per_turn)
        return 0 if mode is Mode.MAINTENANCE else self.await_no_more(node)

    def expect(self, node: NodeId, chunk: ChunkId) -> None:
        """Expect a datanode that is down for maintenance to come back with a good replica."""
        self._apply(self._chunks[chunk], node, ReplicaEvent.EXPECTED)

    def await_no_more(self, node: NodeId) -> int:
        """Stop awaiting replicas of a datanode that has come back and reported, or stayed away for too long.

        Return how many were awaited. `remove_lost` removes them.
        """
        unseen, awaited = self._to_await.pop(node, set()), self._awaited_from.pop(node, set())
        count = len(unseen) + len(awaited)
        _enlist(self._lost, node, unseen)
        _enlist(self._awaited_no_more, node, awaited)
        return count

    # -- what the namespace says -------------------------------------------------------------------

    def add_chunk(
        self, record: ChunkRecord, holders: Sequence[NodeId] = (), now_s: float = 0.0
    ) -> list[tuple[NodeId, ReplicaEvent]]:
        """Add a chunk, or change its wanted replication. `holders` gave receipts for it.

        Return the events of its replicas.
        """
        state = self._chunks.get(record.chunk)
        if state is None:
            state = ChunkState(record.chunk, record.version, record.length, record.replication)
            self._chunks[record.chunk] = state
        state.replication = record.replication
        taken = self.unreferenced.take(record.chunk)
        happened = [(node, _REFERENCED if node in taken else _ATTESTED) for node in holders]
        if taken:
            happened += self._claimed_by_others(state, taken, holders)
        for node, event in happened:
            if event is _ATTESTED:
                self._attest(now_s, state, node)
            elif event is _REFERENCED:
                self._add(state, node)
        self._reindex(record.chunk, state)
        return happened

    @staticmethod
    def _claimed_by_others(
        state: ChunkState, taken: dict[NodeId, Replica], holders: Container[NodeId]
    ) -> Iterator[tuple[NodeId, ReplicaEvent]]:
        for node, replica in taken.items():
            if node not in holders:
                fits = (replica.version, replica.length) == (state.version, state.length)
                yield node, _REFERENCED if fits else ReplicaEvent.MISMATCHED

    def forget(self, chunk: ChunkId) -> list[NodeId]:
        """Remove a chunk that the namespace has removed. Return who still holds a replica, good or corrupt."""
        state = self._chunks.get(chunk)
        left = [] if state is None else [node for node in state.holders if not self.is_lost(chunk, node)]
        self._chunks.pop(chunk, None)
        self.under.discard(chunk)
        self.over.pop(chunk, None)
        self.missing.discard(chunk)
        if state is None:
            return []
        for node in (*state.holders, *state.awaited):
            self._unlist(chunk, node)
            self.unconfirmed.confirm(node, chunk)
        return [*left, *state.corrupt]

    # -- what datanodes say ------------------------------------------------------------------------

    def add_replica(self, node: NodeId, replica: Replica) -> ReplicaEvent:
        """Record a replica that a datanode reports. Return the event; a MISMATCHED replica should be dropped."""
        state = self._chunks.get(replica.chunk)
        if state is None:
            self.unreferenced.add_replica(node, replica)
            return _REPORTED_UNREFERENCED
        if replica.version < state.version or (
            replica.version == state.version and replica.length != state.length
        ):
            return ReplicaEvent.MISMATCHED
        # For a newer version the completion has not arrived yet. Until then the old content is the valid one.
        event = _REPORTED_NEWER if replica.version > state.version else _REPORTED
        self._apply(state, node, event)
        return event

    def attest(self, now_s: float, node: NodeId, state: ChunkState) -> None:
        """Record a replica that another service reported. It counts until the datanode's own report is overdue."""
        self._attest(now_s, state, node)
        self._reindex(state.chunk, state)

    def remove_replica(self, node: NodeId, chunk: ChunkId, event: ReplicaEvent = ReplicaEvent.REMOVED) -> None:
        """Remove a replica that is gone, is being dropped, or was not confirmed. `event` says which."""
        self.unreferenced.remove_replica(node, chunk)
        state = self._chunks.get(chunk)
        if state is not None:
            self._apply(state, node, event)

    def mark_corrupt(self, node: NodeId, chunk: ChunkId) -> bool:
        """Mark a replica that its datanode found corrupt. Return whether a file refers to the chunk."""
        state = self._chunks.get(chunk)
        if state is not None:
            self._apply(state, node, ReplicaEvent.FOUND_CORRUPT)
        return state is not None

    def first_over(self, limit: int) -> list[ChunkId]:
        """Return the first chunks in `over`, up to `limit`, and move them to its end."""
        first = list(islice(self.over, limit))
        for chunk in first:
            del self.over[chunk]
            self.over[chunk] = None
        return first

    def remove_node(self, node: NodeId) -> int:
        """Stop counting the replicas of a datanode that is dead or registers again. Return how many are lost.

        There may be millions, so `remove_lost` removes them little by little. What the datanode reports meanwhile
        counts at once. If it is in maintenance, its replicas become awaited, and none is lost.
        """
        self.unreferenced.remove_node(node)
        is_in_maintenance = node in self._in_maintenance
        lost = 0 if is_in_maintenance else self.held_by(node)
        _enlist(self._to_await if is_in_maintenance else self._lost, node, self._held_by.pop(node, set()))
        return lost

    def is_lost(self, chunk: ChunkId, node: NodeId) -> bool:
        """Return whether the replica of a listed holder is lost, and only waits for `remove_lost`."""
        return chunk in self._lost.get(node, ()) or chunk in self._to_await.get(node, ())

    def remove_lost(self, limit: int) -> bool:
        """Remove up to `limit` replicas that are lost or no longer awaited, then reindex chunks of changed nodes.

        Return whether more remain.
        """
        more_unreferenced = self.unreferenced.remove_lost(limit)
        for due in (self._lost, self._awaited_no_more, self._to_await):
            while due:
                node, chunks = next(iter(due.items()))
                while chunks:
                    if limit == 0:
                        return True
                    limit -= 1
                    chunk = chunks.pop()
                    state = self._chunks[chunk]
                    self._remove_replica(chunk, state, node)
                    self.unconfirmed.confirm(node, chunk)
                    if due is self._to_await:
                        self._await(state, node)
                    self._reindex(chunk, state)
                del due[node]
        return self._reindex_changed(limit) or more_unreferenced

    def is_indexed(self, node: NodeId) -> bool:
        """Return whether all chunks of a datanode have been reindexed for its mode."""
        return node not in self._to_reindex

    def _reindex_changed(self, limit: int) -> bool:
        while self._to_reindex:
            node, chunks = next(iter(self._to_reindex.items()))
            while chunks:
                if limit == 0:
                    return True
                limit -= 1
                state = self._chunks.get(chunk := chunks.pop())
                if state is not None:
                    self._reindex(chunk, state)
            del self._to_reindex[node]
        return False

    # ----------------------------------------------------------------------------------------------

    def _apply(self, state: ChunkState, node: NodeId, event: ReplicaEvent) -> None:
        """Look up the replica's next state in the table, and move it to the matching list."""
        before = self.replica_state(state, node)
        after = TRANSITIONS[before].get(event)
        assert after is not None, f"{event.name} of a replica that is {before.name}"
        if after is before:
            return
        chunk = state.chunk
        if before is not _ABSENT:
            self.unconfirmed.confirm(node, chunk)
            if before is _UNCONFIRMED and after is _LIVE:
                return
            if before is _CORRUPT:
                state.corrupt = _without(state.corrupt, node)
            else:
                self._remove_replica(chunk, state, node)
        if after is _LIVE:
            self._add(state, node)
        elif after is _CORRUPT:
            state.corrupt += (node,)
        elif after is _AWAITED:
            self._await(state, node)
        self._reindex(chunk, state)

    def _attest(self, now_s: float, state: ChunkState, node: NodeId) -> None:
        if TRANSITIONS[self.replica_state(state, node)].get(_ATTESTED) is _UNCONFIRMED:
            self._add(state, node)
            self.unconfirmed.add(now_s, node, state.chunk)

    def _add(self, state: ChunkState, node: NodeId) -> None:
        chunk = state.chunk
        if node in state.awaited or ((self._lost or self._to_await) and self.is_lost(chunk, node)):
            self._remove_replica(chunk, state, node)
        if node not in state.holders and node not in state.corrupt:
            state.holders = self._shared((*state.holders, node))
            self._held_by.setdefault(node, set()).add(chunk)

    def _shared(self, nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        if len(self._tuples) >= holder_tuples_max:
            self._tuples.clear()
        return self._tuples.setdefault(nodes, nodes)

    def _await(self, state: ChunkState, node: NodeId) -> None:
        state.awaited += (node,)
        self._awaited_from.setdefault(node, set()).add(state.chunk)

    def _remove_replica(self, chunk: ChunkId, state: ChunkState, node: NodeId) -> None:
        """Remove the node from the holders or from the awaited nodes."""
        if node in state.holders:
            state.holders = self._shared(_without(state.holders, node))
        elif node in state.awaited:
            state.awaited = _without(state.awaited, node)
        else:
            return
        self._unlist(chunk, node)

    def _unlist(self, chunk: ChunkId, node: NodeId) -> None:
        for of_node in (self._held_by, self._lost, self._to_await, self._awaited_from, self._awaited_no_more):
            if chunks := of_node.get(node):
                chunks.discard(chunk)

    def _reindex(self, chunk: ChunkId, state: ChunkState) -> None:
        good = len(state.holders)
        lasting = staying = good
        if self._decommissioning or self._in_maintenance:
            lasting, staying = len(self.lasting(state)), len(self.staying(state))
        if good > 0 and (lasting < state.replication or staying == 0):
            self.under.mark(chunk, good)
        else:
            self.under.discard(chunk)
        if good == 0:
            self.missing.add(chunk)
        elif self.missing:
            _discard(self.missing, chunk)
        if staying > state.replication or (good > 0 and state.corrupt):
            self.over.setdefault(chunk)
        elif self.over and self.over.pop(chunk, _MISSING) is None and not self.over:
            # Free the memory: an emptied dictionary keeps its table.
            self.over.clear()


def _discard(chunks: set[ChunkId], chunk: ChunkId) -> None:
    if chunk in chunks:
        chunks.remove(chunk)
        # Free the memory: an emptied set keeps its table, which held all chunks at the start.
        if not chunks:
            chunks.clear()


def _without(nodes: tuple[NodeId, ...], gone: NodeId) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node != gone)


def _enlist(listed: dict[NodeId, set[ChunkId]], node: NodeId, chunks: set[ChunkId]) -> None:
    """Add `chunks` to the node's set by adding the smaller of the two sets to the larger. Takes over `chunks`."""
    smaller, larger = sorted((listed.get(node, set()), chunks), key=len)
    larger |= smaller
    if larger:
        listed[node] = larger
