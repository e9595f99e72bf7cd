"""Repair: the next replicas to copy and to drop. Pure: reads membership and chunk map, gives orders.

The chunk with the fewest good replicas comes first. A node takes part in a few copies at a time. A copy that
is refused or overdue is planned again, elsewhere if there is an elsewhere. What a datanode that is to leave holds
is copied from it or from others, until nothing depends on it. What may go `surplus` says; here is what was told to
go, where no copy is sent meanwhile.
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

# Copies for repair that go on however busy the cluster is: one for so many datanodes, at least one.
nodes_per_repair_floor: Final = 8
repairs_in_flight_per_node: Final = 2


#: Chooses a node for one more replica: (holders that stay, nodes that must not get it) -> node, or None.
ChooseTarget = Callable[[Sequence[NodeId], frozenset[NodeId]], NodeId | None]

_CONSIDERED_PER_PLAN = 200
# Chunks that cannot be copied now stand behind the others then, so that the next plan begins with those.
_MISSES_PER_PLAN = 50


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """Copy a chunk from one node to another."""

    chunk: ChunkId
    version: int
    source: NodeId
    target: NodeId
    #: With a rate it is one of the balancer's.
    bytes_per_second: float = 0.0


class Repair:
    """The copies under way and how many were done."""

    def __init__(self) -> None:
        self._under_way: dict[ChunkId, tuple[ReplicaCopy, float]] = {}
        self._failed_targets: dict[ChunkId, set[NodeId]] = {}
        #: Replicas whose deletion was ordered and is not confirmed: a copy sent there would be deleted with them.
        self._being_dropped: dict[ChunkId, dict[NodeId, float]] = {}
        self._drops_due: deque[tuple[float, ChunkId, NodeId]] = deque()
        self.repaired_total = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def copies(self) -> list[tuple[ReplicaCopy, float]]:
        """Return the copies under way, the earliest first, each with when it began."""
        return [(copy, deadline_s - repair_timeout_s) for copy, deadline_s in self._under_way.values()]

    def plan(
        self,
        now_s: float,
        chunks: ChunkMap,
        members: Membership,
        choose_target: ChooseTarget,
        has_room: Callable[[NodeId], bool] = lambda node: True,
    ) -> list[ReplicaCopy]:
        """New copies to start now.

        They go to nodes that what clients write leaves room on. So that repair comes to its end however busy the
        cluster is, one copy for every `nodes_per_repair_floor` nodes goes on regardless.
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
            # When every other node has failed, the failed ones get another chance at the next plan.
            self._failed_targets.pop(chunk, None)
            return None
        source = min(sources, key=lambda node: (busy.get(node, 0), node))
        return ReplicaCopy(chunk, state.version, source, target)

    def finished(self, chunk: ChunkId, *, copied: bool) -> ReplicaCopy | None:
        """A source answered; the copy that this ends, if it was still under way."""
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
        """Copies from or to a node that is dead or starts anew are over, and so are its deletions."""
        for chunk, (copy, _deadline) in list(self._under_way.items()):
            if node in (copy.source, copy.target):
                del self._under_way[chunk]
        for chunk in [chunk for chunk, nodes in self._being_dropped.items() if node in nodes]:
            self.dropped(chunk, node)

    def dropped(self, chunk: ChunkId, node: NodeId) -> None:
        """A datanode confirmed that a replica is gone."""
        nodes = self._being_dropped.get(chunk, {})
        nodes.pop(node, None)
        if not nodes:
            self._being_dropped.pop(chunk, None)

    def drop_ordered(self, now_s: float, chunk: ChunkId, node: NodeId) -> None:
        """A datanode is told to drop a replica; until it says so, no copy is sent there."""
        due_s = now_s + repair_timeout_s
        self._being_dropped.setdefault(chunk, {})[node] = due_s
        self._drops_due.append((due_s, chunk, node))

    def dropping(self, chunk: ChunkId) -> list[NodeId]:
        """Return who was told to drop a replica and has not said that it is gone."""
        return list(self._being_dropped.get(chunk, ()))

    def copy_of(self, chunk: ChunkId) -> ReplicaCopy | None:
        """Return the copy of a chunk that is under way."""
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
