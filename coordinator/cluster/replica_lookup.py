"""Derive the state of a replica from the collections that list it. Pure."""

from __future__ import annotations

from peacefs.protocol.ids import ChunkId, NodeId

from .chunk_map import ChunkMap
from .repair import Repair
from .replica_states import ReplicaState
from .transient_chunks import TransientChunks


class ReplicaLookup:
    """Looks up replicas in the chunk map and among freed, unreferenced and deleting ones. Changes nothing."""

    def __init__(self, chunks: ChunkMap, transient: TransientChunks, repair: Repair) -> None:
        self._chunks = chunks
        self._transient = transient
        self._repair = repair

    def state(self, chunk: ChunkId, node: NodeId) -> ReplicaState:
        state = self._chunks.get(chunk)
        found = ReplicaState.ABSENT if state is None else self._chunks.replica_state(state, node)
        if found is not ReplicaState.ABSENT:
            return found
        if self._transient.keeps(node, chunk):
            return ReplicaState.FREED
        if state is None and self._chunks.unreferenced.is_held(node, chunk):
            return ReplicaState.UNREFERENCED
        return ReplicaState.DELETING if self._repair.is_being_dropped(chunk, node) else ReplicaState.ABSENT

    def of(self, chunk: ChunkId) -> dict[NodeId, ReplicaState]:
        """Return the state of each replica of a chunk, by datanode."""
        state = self._chunks.get(chunk)
        nodes = [] if state is None else [*state.holders, *state.corrupt, *state.awaited]
        nodes += [*self._transient.nodes(chunk), *self._repair.dropping(chunk)]
        nodes += self._chunks.unreferenced.of_chunk(chunk)
        return {node: self.state(chunk, node) for node in nodes}
