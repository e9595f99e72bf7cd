"""A run of balancing, and the search for replicas that may move from a source to a target. Pure.

Only a healthy chunk is moved: it has as many good replicas as wanted, all on datanodes in service, and none is
corrupt or awaited. A move does not reduce the spread over racks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from peacefs.coordinator.limits import tick_interval_s
from peacefs.peace.balance_plan import BalancePhase, BalancePlan, keeps_spread
from peacefs.peace.policies.hdfs_placement import replicas_per_rack_max
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import chunk_bytes_max, small_chunk_bytes_max

from .chunk_map import ChunkMap, ChunkState
from .membership import Membership, State
from .repair import Repair, ReplicaCopy

balance_chunks_per_turn: Final = 500
# The weight that a datanode can take part in at once: two moves of large chunks, or sixteen of small ones.
balance_weight_per_node_max: Final = 16


#: The weight of a large chunk's move; a small chunk's move has weight 1.
_LARGE_WEIGHT = 8


class _Wait(Enum):
    """The result for a chunk that could be moved, but not now."""

    WAIT = "wait"


class MoveFinder:
    """Find the moves of one turn. The balancer creates a finder per tick; datanodes and chunks must not change."""

    def __init__(
        self,
        now_s: float,
        run: BalanceRun,
        chunks: ChunkMap,
        members: Membership,
        repair: Repair,
        moving: Set[ChunkId],
    ) -> None:
        self._soon_s = now_s + tick_interval_s
        self._now_s = now_s
        self._run = run
        self._chunks = chunks
        self._members = members
        self._repair = repair
        self._moving = moving
        self._nodes = {node.id: node for node in members.in_service()}
        self._racks = len({node.rack for node in self._nodes.values()})
        self._found: set[ChunkId] = set()
        self._looks_left = balance_chunks_per_turn
        #: True once every source has shown all its chunks.
        self.is_through = True

    def find(self, load: Counter[NodeId]) -> Iterator[ReplicaCopy]:
        """Yield copies to start now, and enter them into the run's plan. `load` has the datanodes' weights."""
        for source in self._run.plan.sources():
            if source in self._nodes:
                yield from self._from(source, load)

    def _from(self, source: NodeId, load: Counter[NodeId]) -> Iterator[ReplicaCopy]:
        walk = self._run.walks.get(source)
        if walk is None:
            walk = self._run.walks[source] = ChunkWalk(self._chunks.chunks_of(source))
        while self._run.plan.targets(source, 1):
            if not self._is_free(source, load) or self._looks_left == 0:
                self.is_through = False
                return
            chunk = walk.next()
            if chunk is None:
                return
            self._looks_left -= 1
            target = self._look_at(chunk, source, walk, load)
            if isinstance(target, _Wait):
                walk.put_back(chunk)
                self.is_through = False
                return
            if target is not None:
                yield self._enter(chunk, source, target, load)

    def _look_at(
        self, chunk: ChunkId, source: NodeId, walk: ChunkWalk, load: Counter[NodeId]
    ) -> NodeId | _Wait | None:
        """Return the target of a chunk; None if it stays where it is."""
        state = self._chunks.get(chunk)
        if state is None or state.length == 0 or not self._is_well(chunk, state, source):
            return None
        is_moving = chunk in self._moving or chunk in self._found
        # Moves of small chunks gain little, so they come last.
        if (is_moving or state.length <= small_chunk_bytes_max) and not walk.is_second_round:
            walk.postpone(chunk)
            return None
        if is_moving:
            return _Wait.WAIT
        targets = [
            target
            for target in self._run.plan.targets(source, state.length)
            if self._may_go(chunk, state, source, target)
        ]
        if not targets:
            return None
        return next((target for target in targets if self._is_free(target, load)), _Wait.WAIT)

    def _is_well(self, chunk: ChunkId, state: ChunkState, source: NodeId) -> bool:
        return (
            chunk not in self._chunks.under
            and chunk not in self._chunks.over
            and source in state.holders
            and not state.corrupt
            and not state.awaited
            and all(node in self._nodes and not self._chunks.is_lost(chunk, node) for node in state.holders)
        )

    def _may_go(self, chunk: ChunkId, state: ChunkState, source: NodeId, target: NodeId) -> bool:
        node = self._nodes.get(target)
        if node is None or target in state.holders or node.usage.available_bytes < chunk_bytes_max:
            return False
        if self._repair.is_being_dropped(chunk, target):
            return False
        before = [self._nodes[holder].rack for holder in state.holders]
        after = [self._nodes[holder].rack for holder in state.holders if holder != source] + [node.rack]
        return keeps_spread(before, after, replicas_per_rack_max(state.replication, self._racks))

    def _is_free(self, node: NodeId, load: Counter[NodeId]) -> bool:
        is_in_time = self._run.free_at_s.get(node, self._now_s) <= self._soon_s
        return is_in_time and load[node] < balance_weight_per_node_max

    def _enter(self, chunk: ChunkId, source: NodeId, target: NodeId, load: Counter[NodeId]) -> ReplicaCopy:
        state = self._chunks.get(chunk)
        assert state is not None, "it was looked at just now"
        run = self._run
        self._found.add(chunk)
        run.plan.move(source, target, state.length)
        for node in (source, target):
            load[node] += weight(state.length)
            free_at_s = max(run.free_at_s.get(node, self._now_s), self._now_s)
            run.free_at_s[node] = free_at_s + state.length / run.bytes_per_second
        return ReplicaCopy(chunk, state.version, source, target, run.bytes_per_second)


def weight(size: int) -> int:
    """Return the weight of moving a chunk of `size` bytes; see `balance_weight_per_node_max`."""
    return 1 if size <= small_chunk_bytes_max else _LARGE_WEIGHT


def may_drop(chunk: ChunkId, state: ChunkState, copy: ReplicaCopy, chunks: ChunkMap, members: Membership) -> bool:
    """Return whether the source's replica can go, now that the target holds its copy."""
    staying = chunks.staying(state)
    racks = {node: found.rack for node in staying if (found := members.get(node)) is not None}
    if copy.source not in racks or copy.target not in racks or len(staying) <= state.replication:
        return False
    if any(not _is_alive(members, node) or chunks.is_lost(chunk, node) for node in staying):
        return False
    before = [rack for node, rack in racks.items() if node != copy.target]
    after = [rack for node, rack in racks.items() if node != copy.source]
    return len(set(after)) >= len(set(before))


def _is_alive(members: Membership, node_id: NodeId) -> bool:
    node = members.get(node_id)
    return node is not None and node.state is State.ALIVE


class ChunkWalk:
    """An iteration over the chunks of a source. Each comes once; postponed chunks come in a second round."""

    def __init__(self, chunks: list[ChunkId]) -> None:
        self._waiting = chunks
        self._postponed: list[ChunkId] = []
        self.is_second_round = False

    def next(self) -> ChunkId | None:
        """Return the next chunk, or None after the last."""
        if not self._waiting and not self.is_second_round:
            self.is_second_round = True
            self._waiting, self._postponed = self._postponed, []
        return self._waiting.pop() if self._waiting else None

    def postpone(self, chunk: ChunkId) -> None:
        """Postpone a chunk to the second round."""
        self._postponed.append(chunk)

    def put_back(self, chunk: ChunkId) -> None:
        """Put a chunk back, so that `next` returns it again."""
        self._waiting.append(chunk)


@dataclass
class BalanceRun:
    """A run of balancing. Each datanode sends and receives, together, at most `bytes_per_second` for it."""

    name: str
    threshold: float
    bytes_per_second: float
    plan: BalancePlan
    started_s: float
    renewed_s: float
    phase: BalancePhase = BalancePhase.RUNNING
    bytes_moved: int = 0
    moved: int = 0
    failed: int = 0
    #: Copies that failed since the last success.
    failed_in_a_row: int = 0
    walks: dict[NodeId, ChunkWalk] = field(default_factory=dict)
    #: When each datanode will have sent or received everything that was ordered, at the limited rate.
    free_at_s: dict[NodeId, float] = field(default_factory=dict)
