"""Repair: choose which replicas to copy next. Pure: reads membership and chunk map, returns copies to start.

The chunk with the fewest good replicas comes first. A node takes part in a few copies at a time. A copy that is
refused or overdue is planned again, with another target if there is one. Chunks on a decommissioning datanode are
copied, from it or from other holders, until none depends on it. `surplus` decides which replicas to drop; this
module remembers the ordered drops, because no copy may go to a node that is dropping the chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from peacefs.coordinator.limits import repair_timeout_s
from peacefs.protocol.ids import ChunkId, NodeId

from .chunk_map import ChunkMap, ChunkState
from .membership import Membership, State

# Even in a busy cluster, one repair copy per this many datanodes may run, and at least one in total.
nodes_per_repair_floor: Final = 8
repairs_in_flight_per_node: Final = 2


#: Chooses a node for one more replica: (holders that stay, nodes that must not get it) -> node, or None.
ChooseTarget = Callable[[Sequence[NodeId], frozenset[NodeId]], NodeId | None]

_CONSIDERED_PER_PLAN = 200
# A plan stops after this many chunks that cannot be copied. They move to the end, so the next plan sees others.
_MISSES_PER_PLAN = 50


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """Copy a chunk from one node to another."""

    chunk: ChunkId
    version: int
    source: NodeId
    target: NodeId
    #: The maximum rate for a copy of the balancer; 0 for a copy of repair.
    bytes_per_second: float = 0.0


class Repair:
    """The copies under way, their failed targets, and the ordered drops. `Cluster` plans with it at each tick.

    A chunk has at most one copy under way, and a datanode takes part in at most `repairs_in_flight_per_node`.
    """

    def __init__(self) -> None:
        self._under_way: dict[ChunkId, tuple[ReplicaCopy, float]] = {}
        self._failed_targets: dict[ChunkId, set[NodeId]] = {}
        #: Replicas with an unconfirmed deletion order, which would also delete a copy that is sent there.
        self._being_dropped: dict[ChunkId, dict[NodeId, float]] = {}
        self._drops_due: deque[tuple[float, ChunkId, NodeId]] = deque()
        self.repaired_total = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def copies(self) -> list[tuple[ReplicaCopy, float]]:
        """Return the copies under way with their start times, the earliest first."""
        return [(copy, deadline_s - repair_timeout_s) for copy, deadline_s in self._under_way.values()]

    def plan(
        self,
        now_s: float,
        chunks: ChunkMap,
        members: Membership,
        choose_target: ChooseTarget,
        has_room: Callable[[NodeId], bool] = lambda node: True,
    ) -> list[ReplicaCopy]:
        """Return new copies to start now.

        They go to nodes where client writes leave room. One copy for every `nodes_per_repair_floor` nodes goes on
        regardless, so that repair finishes even in a busy cluster.
        """
        self._give_up_overdue(now_s)
        busy = self._load()
        alive = [node.id for node in members.alive()]
        crowded = frozenset(node for node in alive if not has_room(node))
        floor = max(1, len(alive) // nodes_per_repair_floor)
        copies: list[ReplicaCopy] = []
        misses = 0
        for chunk in chunks.under.first(_CONSIDERED_PER_PLAN, but=self._under_way):
            if sum(busy.get(node, 0) < repairs_in_flight_per_node for node in alive) < 2:
                break
            barred = crowded if len(self._under_way) >= floor else frozenset[NodeId]()
            copy = self._plan_one(chunk, chunks, members, busy, choose_target, barred)
            if copy is None:
                chunks.under.postpone(chunk)
                misses += 1
                if misses == _MISSES_PER_PLAN:
                    break
            else:
                copies.append(copy)
                self._under_way[chunk] = copy, now_s + repair_timeout_s
                for node in (copy.source, copy.target):
                    busy[node] = busy.get(node, 0) + 1
        return copies

    def _plan_one(
        self,
        chunk: ChunkId,
        chunks: ChunkMap,
        members: Membership,
        busy: dict[NodeId, int],
        choose_target: ChooseTarget,
        barred: frozenset[NodeId],
    ) -> ReplicaCopy | None:
        state = _state(chunks, chunk)
        full = {node for node, load in busy.items() if load >= repairs_in_flight_per_node}
        sources = [
            node
            for node in state.holders
            if node not in full and _is_alive(members, node) and not chunks.is_lost(chunk, node)
        ]
        if not sources:
            return None
        failed = self._failed_targets.get(chunk, set())
        dropped = self._being_dropped.get(chunk, {}).keys()
        excluded = barred.union(full, failed, dropped, state.corrupt, state.holders, state.awaited)
        target = choose_target(chunks.lasting(state), excluded)
        if target is None and barred:
            return None
        if target is None:
            # If all other nodes have failed, let the next plan try them again.
            self._failed_targets.pop(chunk, None)
            return None
        source = min(sources, key=lambda node: (busy.get(node, 0), node))
        return ReplicaCopy(chunk, state.version, source, target)

    def finished(self, chunk: ChunkId, *, copied: bool) -> ReplicaCopy | None:
        """End the copy of a chunk. Return the copy, or None if none was under way."""
        entry = self._under_way.pop(chunk, None)
        if entry is None:
            return None
        if copied:
            self.repaired_total += 1
            self._failed_targets.pop(chunk, None)
        else:
            self._failed_targets.setdefault(chunk, set()).add(entry[0].target)
        return entry[0]

    def node_lost(self, node: NodeId) -> None:
        """End the copies from and to a node that is dead or registers again, and its deletions."""
        for chunk, (copy, _deadline) in list(self._under_way.items()):
            if node in (copy.source, copy.target):
                del self._under_way[chunk]
        for chunk in [chunk for chunk, nodes in self._being_dropped.items() if node in nodes]:
            self.dropped(chunk, node)

    def dropped(self, chunk: ChunkId, node: NodeId) -> None:
        """Note that a replica is gone, or that its deletion is not waited for any more."""
        nodes = self._being_dropped.get(chunk, {})
        nodes.pop(node, None)
        if not nodes:
            self._being_dropped.pop(chunk, None)

    def drop_ordered(self, now_s: float, chunk: ChunkId, node: NodeId) -> None:
        """Note that a datanode is told to drop a replica. Send no copy there until it confirms or a timeout."""
        due_s = now_s + repair_timeout_s
        self._being_dropped.setdefault(chunk, {})[node] = due_s
        self._drops_due.append((due_s, chunk, node))

    def dropping(self, chunk: ChunkId) -> list[NodeId]:
        """Return the datanodes that were told to drop a replica of the chunk and have not confirmed it."""
        return list(self._being_dropped.get(chunk, ()))

    def copy_of(self, chunk: ChunkId) -> ReplicaCopy | None:
        """Return the copy of the chunk that is under way, if any."""
        entry = self._under_way.get(chunk)
        return None if entry is None else entry[0]

    def is_being_dropped(self, chunk: ChunkId, node: NodeId) -> bool:
        return node in self._being_dropped.get(chunk, ())

    def _give_up_overdue(self, now_s: float) -> None:
        for chunk, (_copy, deadline_s) in list(self._under_way.items()):
            if deadline_s <= now_s:
                self.finished(chunk, copied=False)
        while self._drops_due and self._drops_due[0][0] <= now_s:
            due_s, chunk, node = self._drops_due.popleft()
            if self._being_dropped.get(chunk, {}).get(node) == due_s:
                self.dropped(chunk, node)

    def _load(self) -> dict[NodeId, int]:
        load: dict[NodeId, int] = {}
        for copy, _deadline in self._under_way.values():
            for node in (copy.source, copy.target):
                load[node] = load.get(node, 0) + 1
        return load


def _state(chunks: ChunkMap, chunk: ChunkId) -> ChunkState:
    state = chunks.get(chunk)
    assert state is not None, "marked chunks are known"
    return state


def _is_alive(members: Membership, node_id: NodeId) -> bool:
    node = members.get(node_id)
    return node is not None and node.state is State.ALIVE
