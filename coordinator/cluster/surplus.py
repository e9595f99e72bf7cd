"""Decide which replicas to drop: surplus replicas, and corrupt ones whose content other replicas have. Pure.

A report is not enough to rely on the remaining replicas: their datanodes are asked for proofs first
(`possession`), and only proven replicas count. Until the proofs agree, all replicas stay.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from peacefs.coordinator.limits import surplus_chunks_per_tick
from peacefs.protocol.ids import ChunkId, NodeId

from .chunk_map import ChunkMap, ChunkState
from .membership import Membership, State
from .possession import Evidence, Possession
from .replica_states import ReplicaEvent

surplus_misses_per_tick: Final = 50


@dataclass(frozen=True, slots=True)
class Drop:
    chunk: ChunkId
    version: int
    length: int
    node: NodeId


class Surplus:
    """Asks for proofs and judges them, chunk by chunk. `Cluster` calls it at each tick. All state is elsewhere."""

    def __init__(self, chunks: ChunkMap, members: Membership, possession: Possession) -> None:
        self._chunks = chunks
        self._members = members
        self._possession = possession

    def ask(self, now_s: float, but: Container[ChunkId]) -> list[tuple[ChunkId, NodeId]]:
        """Ask the holders of chunks with replicas that may be dropped, except the chunks in `but`.

        Return the corrupt replicas of dead datanodes, which this call has forgotten.
        """
        misses = 0
        swept: list[tuple[ChunkId, NodeId]] = []
        for chunk in self._chunks.first_over(surplus_chunks_per_tick):
            state = _state(self._chunks, chunk)
            swept += [(chunk, node) for node in self._sweep_dead_corrupt(chunk, state)]
            if chunk in but or not self._possession.may_ask(now_s, chunk):
                continue
            nodes = self._holders_to_ask(chunk, state)
            if nodes and not self._possession.ask(now_s, state, nodes):
                misses += 1
                if misses == surplus_misses_per_tick:
                    break
        return swept

    def _sweep_dead_corrupt(self, chunk: ChunkId, state: ChunkState) -> list[NodeId]:
        """Forget corrupt replicas on dead datanodes. A datanode that comes back reports its replicas again."""
        dead = []
        for node in state.corrupt:
            found = self._members.get(node)
            if found is None or found.state is State.DEAD:
                self._chunks.remove_replica(node, chunk, ReplicaEvent.SWEPT)
                dead.append(node)
        return dead

    def _holders_to_ask(self, chunk: ChunkId, state: ChunkState) -> list[NodeId]:
        """Return the holders to ask; empty if there is nothing to drop, or if this cannot be decided now."""
        if any(self._chunks.is_lost(chunk, node) for node in state.holders):
            return []
        corrupt = [node for node in state.corrupt if self._is_alive(node)]
        staying = self._chunks.staying(state)
        good = [node for node in state.holders if self._is_alive(node)]
        # If a suspect holder died, the apparent surplus would be needed.
        has_excess = len(staying) > state.replication and all(self._is_alive(node) for node in staying)
        if good and corrupt:
            return [*good, *corrupt]
        return staying if has_excess else []

    def judge(self, now_s: float, evidence: Evidence) -> list[Drop]:
        """Return which replicas of a chunk to drop, now that its holders have answered."""
        chunk = evidence.chunk
        state = self._chunks.get(chunk)
        if state is None or chunk not in self._chunks.over or state.version != evidence.version:
            self._possession.forget(chunk)
            return []
        if any(self._chunks.is_lost(chunk, node) for node in state.holders):
            return []
        nodes = [node for node in state.corrupt if evidence.outlives(node, state.holders)]
        nodes += self._in_excess(state, evidence)
        if nodes:
            self._possession.accept(chunk)
        else:
            self._possession.refuse(now_s, chunk)
        return [Drop(chunk, state.version, state.length, node) for node in nodes]

    def _in_excess(self, state: ChunkState, evidence: Evidence) -> list[NodeId]:
        """Return the surplus holders among those whose proofs agree."""
        staying = self._chunks.staying(state)
        if not all(self._is_alive(node) for node in staying):
            return []
        proven = evidence.agreeing(staying)
        return _dispensable(proven, self._members, max(0, len(proven) - state.replication))

    def _is_alive(self, node_id: NodeId) -> bool:
        node = self._members.get(node_id)
        return node is not None and node.state is State.ALIVE


def _state(chunks: ChunkMap, chunk: ChunkId) -> ChunkState:
    state = chunks.get(chunk)
    assert state is not None, "marked chunks are known"
    return state


def _dispensable(holders: Sequence[NodeId], members: Membership, excess: int) -> list[NodeId]:
    """Choose `excess` holders to drop: each from the rack with the most replicas, its fullest node first."""
    kept = list(holders)
    dropped = []
    for _ in range(excess):
        racks = {node: found.rack for node in kept if (found := members.get(node)) is not None}
        crowd = {rack: list(racks.values()).count(rack) for rack in racks.values()}

        def burden(
            node_id: NodeId, racks: dict[NodeId, str] = racks, crowd: dict[str, int] = crowd
        ) -> tuple[int, int, str]:
            node = members.get(node_id)
            available = node.usage.available_bytes if node is not None else 0
            return -crowd.get(racks.get(node_id, ""), 0), available, node_id

        victim = min(kept, key=burden)
        kept.remove(victim)
        dropped.append(victim)
    return dropped
