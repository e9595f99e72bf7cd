"""In which state replicas are, of all chunks: it follows from where they are listed. Pure."""

from __future__ import annotations

from peacefs.protocol.ids import ChunkId, NodeId

from .chunk_map import ChunkMap
from .repair import Repair
from .replica_states import ReplicaState
from .transient_chunks import TransientChunks


class ReplicaLookup:
    """Looks into the chunk map, among what is freed, unreferenced and being deleted; changes nothing."""

    def __init__(self, chunks: ChunkMap, transient: TransientChunks, repair: Repair) -> None:
        self._chunks = chunks
        self._transient = transient
        self._repair = repair

    def state(self, chunk: ChunkId, node: NodeId) -> ReplicaState:
        """Return the state of a replica."""
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
        """Return the datanodes that have to do with a chunk, and how."""
        state = self._chunks.get(chunk)
        nodes = [] if state is None else [*state.holders, *state.corrupt, *state.awaited]
        nodes += [*self._transient.nodes(chunk), *self._repair.dropping(chunk)]
        nodes += self._chunks.unreferenced.of_chunk(chunk)
        return {node: self.state(chunk, node) for node in nodes}
