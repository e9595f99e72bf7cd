"""Locations of replicas: soft state, rebuilt from reports, never stored. Pure.

The namespace says which chunks exist (`add_chunk`, `forget`), datanodes say what they hold (`add_replica`,
`remove_replica`). What an event makes of a replica is in the table of `replica_states`; here is where its state
is found. What a datanode holds and the namespace does not know is *unreferenced*: a write under way, or garbage of
one that failed. Unreferenced chunks below the GC floor are garbage for certain, because no token to complete them
can be valid. Replicas on a datanode that is *decommissioning* can be read and copied, and count for nothing else.
Those on one *in maintenance* count, even while it is down, but never as the only ones.
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

# The sets of datanodes that hold a chunk are few, each is kept once; with very many datanodes they are not.
holder_tuples_max: Final = 100_000


_MISSING = object()
# They are looked up for every replica that is reported.
_ABSENT, _UNCONFIRMED, _LIVE = ReplicaState.ABSENT, ReplicaState.UNCONFIRMED, ReplicaState.LIVE
_CORRUPT, _LOST, _AWAITED = ReplicaState.CORRUPT, ReplicaState.LOST, ReplicaState.AWAITED
_ATTESTED, _REFERENCED = ReplicaEvent.ATTESTED, ReplicaEvent.REFERENCED
_REPORTED, _REPORTED_NEWER = ReplicaEvent.REPORTED, ReplicaEvent.REPORTED_NEWER
_REPORTED_UNREFERENCED = ReplicaEvent.REPORTED_UNREFERENCED


class ChunkState(msgspec.Struct, gc=False):
    """A chunk that the namespace knows.

    `holders` have a good replica, `corrupt` a bad one; `awaited` had a good one, are down, and are to come back.

    There may be many millions of these. So `chunk` is the one object of that number, for the sets to hold:
    datanodes say it too, each with an object of its own. And `holders` is one tuple for all that have the same.
    They are part of no cycle: the garbage collector need not know them.
    """

    chunk: ChunkId
    version: int
    length: int
    replication: int
    holders: tuple[NodeId, ...] = ()
    corrupt: tuple[NodeId, ...] = ()
    awaited: tuple[NodeId, ...] = ()


class ChunkMap:
    """All chunks with their replicas, and the sets that repair works from."""

    def __init__(self) -> None:
        self._chunks: dict[ChunkId, ChunkState] = {}
        self._held_by: dict[NodeId, set[ChunkId]] = {}
        #: Lost with their datanode and not removed yet: see `remove_node`. Their holders are still named.
        self._lost: dict[NodeId, set[ChunkId]] = {}
        self._decommissioning: set[NodeId] = set()
        self._in_maintenance: set[NodeId] = set()
        #: Like `_lost`, of datanodes that were in maintenance when they were lost: these come to be awaited.
        self._to_await: dict[NodeId, set[ChunkId]] = {}
        self._awaited_from: dict[NodeId, set[ChunkId]] = {}
        #: No longer awaited and not removed yet: see `await_no_more`. They are still named as awaited.
        self._awaited_no_more: dict[NodeId, set[ChunkId]] = {}
        #: Chunks of datanodes that have another mode now, which are to be judged by it.
        self._to_reindex: dict[NodeId, list[ChunkId]] = {}
        self._tuples: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}
        self.unreferenced = UnreferencedChunks()
        #: Holders that others have named.
        self.unconfirmed = UnconfirmedReplicas()
        #: Chunks with fewer lasting replicas than wanted; those without any are `missing`, not here.
        self.under = LowRedundancyQueue()
        #: With replicas in excess or corrupt, those first that have not been looked at for longest.
        self.over: dict[ChunkId, None] = {}
        self.missing: set[ChunkId] = set()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, chunk: ChunkId) -> ChunkState | None:
        return self._chunks.get(chunk)

    def replica_state(self, state: ChunkState, node: NodeId) -> ReplicaState:
        """Return where in the lists a datanode stands for a chunk."""
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
        """All of which a datanode holds a good replica: a copy, at 10 ms a million."""
        return list(self._held_by.get(node, ()))

    def staying(self, state: ChunkState) -> list[NodeId]:
        """Return the holders that are neither decommissioning nor in maintenance."""
        return [
            node
            for node in state.holders
            if node not in self._decommissioning and node not in self._in_maintenance
        ]

    def lasting(self, state: ChunkState) -> list[NodeId]:
        """Return the nodes whose replicas count towards what is wanted: all but decommissioning ones."""
        return [node for node in state.holders if node not in self._decommissioning] + list(state.awaited)

    def to_drain(self, node: NodeId) -> int:
        """Return how many of a datanode's chunks still lack replicas elsewhere, which it must wait for."""
        return sum(1 for _chunk in self._to_drain(node))

    def without_a_place(self, node: NodeId, places: int) -> int:
        """Return how many of these want more replicas than there are places: they wait until there are more."""
        return sum(1 for chunk in self._to_drain(node) if self._chunks[chunk].replication > places)

    def is_drained(self, node: NodeId) -> bool:
        """Return whether there are none: known as soon as one is found."""
        return next(self._to_drain(node), None) is None

    def _to_drain(self, node: NodeId) -> Iterator[ChunkId]:
        # The smaller of the two is walked: in a cluster that is well few chunks lack replicas.
        held = self._held_by.get(node, set())
        smaller, larger = (self.under, held) if len(self.under) < len(held) else (held, self.under)
        for chunk in smaller:
            if chunk in larger and not (node in self._in_maintenance and self.staying(self._chunks[chunk])):
                yield chunk

    # -- what an operator says ---------------------------------------------------------------------

    def set_mode(self, node: NodeId, mode: Mode) -> int:
        """Take a datanode's admin state. Until it goes, its replicas are as good to read as any.

        How many replicas were awaited from it and are no more. What it holds is reindexed by `remove_lost`,
        but for the first of it.
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
        """A datanode that is away for a while is to come back with a good replica."""
        self._apply(self._chunks[chunk], node, ReplicaEvent.EXPECTED)

    def await_no_more(self, node: NodeId) -> int:
        """A datanode has come back and said what it holds, or has been away for too long.

        How many replicas were awaited from it. They too are removed by `remove_lost`.
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
        """A chunk exists, or its wanted replication changed; `holders` gave receipts for it.

        Return what has happened to which of its replicas.
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
        """A chunk is gone from the namespace; who still holds something of it."""
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
        """A datanode holds a replica. Return what that means; one that is MISMATCHED should be dropped."""
        state = self._chunks.get(replica.chunk)
        if state is None:
            self.unreferenced.add_replica(node, replica)
            return _REPORTED_UNREFERENCED
        if replica.version < state.version or (
            replica.version == state.version and replica.length != state.length
        ):
            return ReplicaEvent.MISMATCHED
        # The completion of a newer version has not arrived yet; until then the old content is the valid one.
        event = _REPORTED_NEWER if replica.version > state.version else _REPORTED
        self._apply(state, node, event)
        return event

    def attest(self, now_s: float, node: NodeId, state: ChunkState) -> None:
        """Somebody else says that a datanode holds a replica; it counts until the datanode must have said so."""
        self._attest(now_s, state, node)
        self._reindex(state.chunk, state)

    def remove_replica(self, node: NodeId, chunk: ChunkId, event: ReplicaEvent = ReplicaEvent.REMOVED) -> None:
        """A datanode holds it no more, or is told to drop it, or cannot be believed to hold it."""
        self.unreferenced.remove_replica(node, chunk)
        state = self._chunks.get(chunk)
        if state is not None:
            self._apply(state, node, event)

    def mark_corrupt(self, node: NodeId, chunk: ChunkId) -> bool:
        """A datanode found its own replica to be corrupt. Return whether that is a replica of a file's chunk."""
        state = self._chunks.get(chunk)
        if state is not None:
            self._apply(state, node, ReplicaEvent.FOUND_CORRUPT)
        return state is not None

    def first_over(self, limit: int) -> list[ChunkId]:
        """Up to `limit` of those in `over`, which then stand behind all others."""
        first = list(islice(self.over, limit))
        for chunk in first:
            del self.over[chunk]
            self.over[chunk] = None
        return first

    def remove_node(self, node: NodeId) -> int:
        """A datanode is dead or registers anew: nothing that it held counts. How many replicas that were.

        There may be millions: they are removed by `remove_lost`, little by little. What the datanode says
        of a chunk meanwhile counts at once. What one in maintenance held comes to be awaited: that is not lost.
        """
        self.unreferenced.remove_node(node)
        is_in_maintenance = node in self._in_maintenance
        lost = 0 if is_in_maintenance else self.held_by(node)
        _enlist(self._to_await if is_in_maintenance else self._lost, node, self._held_by.pop(node, set()))
        return lost

    def is_lost(self, chunk: ChunkId, node: NodeId) -> bool:
        """Return whether a holder of the chunk is still listed whose datanode is lost."""
        return chunk in self._lost.get(node, ()) or chunk in self._to_await.get(node, ())

    def remove_lost(self, limit: int) -> bool:
        """Remove up to `limit` replicas that were lost or are awaited no more, then reindex what has changed.

        Whether there are more.
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
        """Return whether all that a datanode holds has been judged by its mode."""
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
        """Have the table decide what becomes of a replica, and list it there."""
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
        """A node is named as a holder no more, nor as one that is awaited, if it was."""
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
            # One that has become empty keeps the memory of what was in it.
            self.over.clear()


def _discard(chunks: set[ChunkId], chunk: ChunkId) -> None:
    if chunk in chunks:
        chunks.remove(chunk)
        # A set that has become empty keeps the memory of what was in it: at a start, of all chunks.
        if not chunks:
            chunks.clear()


def _without(nodes: tuple[NodeId, ...], gone: NodeId) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node != gone)


def _enlist(listed: dict[NodeId, set[ChunkId]], node: NodeId, chunks: set[ChunkId]) -> None:
    """Takes `chunks` over without looking at each; the smaller of the two joins the larger."""
    smaller, larger = sorted((listed.get(node, set()), chunks), key=len)
    larger |= smaller
    if larger:
        listed[node] = larger
