"""Moves replicas from fuller datanodes to emptier ones, while a client keeps the run going. Pure.

    copy ordered --target reports the replica--> both asked --they hold the same--> source's replica dropped
         `--refused, overdue, a datanode lost--> nothing has changed

The source's replica is dropped only if the target has proven that it holds the same content, and if enough good
replicas remain on living datanodes, in no fewer racks. In doubt the replica stays, as surplus (see `surplus`).

There is one run at a time. The client that started it must keep renewing it. When the renewals stop, no more
copies are ordered, but those under way are completed. A restart of the coordinator ends the run, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

from peacefs.coordinator.limits import repair_timeout_s
from peacefs.peace.balance_plan import BalancePhase, BalancePlan, Fill
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import balance_failures_max, balance_silence_s
from peacefs.protocol.messages import Replica

from .balance_moves import BalanceRun, MoveFinder, may_drop, weight
from .chunk_map import ChunkMap
from .membership import Membership
from .possession import Evidence, Possession
from .repair import Repair, ReplicaCopy
from .surplus import Drop


@dataclass(slots=True)
class _Move:
    copy: ReplicaCopy
    length: int
    deadline_s: float
    run: BalanceRun
    #: True once the source has answered. Then neither datanode is busy with the move any more.
    is_answered: bool = False


class Balancer:
    """The current or last run, and all moves. Operators start and stop runs; `Cluster` calls the rest.

    A chunk is in at most one move: first in `_moves`, then in `_arrived` until its source's replica is judged.
    """

    def __init__(self) -> None:
        self.run: BalanceRun | None = None
        self._moves: dict[ChunkId, _Move] = {}
        #: Copies that their targets have reported and must still prove.
        self._arrived: dict[ChunkId, ReplicaCopy] = {}

    @property
    def under_way(self) -> int:
        """The number of replicas that are being moved."""
        return len(self._moves) + len(self._arrived)

    @property
    def arrived(self) -> Set[ChunkId]:
        """Chunks with a copy that its target must still prove."""
        return self._arrived.keys()

    # -- what the run's client says ----------------------------------------------------------------

    def start(
        self, now_s: float, name: str, members: Membership, threshold: float, bytes_per_second: float
    ) -> BalanceRun:
        """Begin a run, or return the one that is under way, perhaps under another name."""
        if self.run is None or (self.run.phase is not BalancePhase.RUNNING and self.run.name != name):
            fills = {
                node.id: Fill(node.usage.live_bytes, node.usage.capacity_bytes)
                for node in members.in_service()
                if node.reported
            }
            plan = BalancePlan(fills, threshold)
            self.run = BalanceRun(name, threshold, bytes_per_second, plan, started_s=now_s, renewed_s=now_s)
            for move in self._moves.values():
                self._take_over(move, self.run)
        return self.run

    @staticmethod
    def _take_over(move: _Move, run: BalanceRun) -> None:
        """Let a run take over a move that an earlier run left under way."""
        if run.plan.has(move.copy.source, move.copy.target):
            move.run = run
            run.plan.move(move.copy.source, move.copy.target, move.length)

    def renew(self, now_s: float, name: str) -> None:
        """Keep the run of this name going."""
        if self.run is not None and self.run.name == name:
            self.run.renewed_s = now_s

    def cancel(self, name: str) -> None:
        """Order no more copies for the run of this name."""
        if self.run is not None and self.run.name == name and self.run.phase is BalancePhase.RUNNING:
            self.run.phase = BalancePhase.CANCELLED

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now_s: float, chunks: ChunkMap, members: Membership, repair: Repair) -> list[ReplicaCopy]:
        """Return copies to start now."""
        for move in [move for move in self._moves.values() if move.deadline_s <= now_s]:
            self._fail(move)
        run = self.run
        if run is None or run.phase is not BalancePhase.RUNNING:
            return []
        if now_s - run.renewed_s > balance_silence_s:
            run.phase = BalancePhase.ABANDONED
        elif run.failed_in_a_row >= balance_failures_max:
            run.phase = BalancePhase.FAILING
        if run.phase is not BalancePhase.RUNNING:
            return []
        return self._go_on(now_s, run, chunks, members, repair)

    def _go_on(
        self, now_s: float, run: BalanceRun, chunks: ChunkMap, members: Membership, repair: Repair
    ) -> list[ReplicaCopy]:
        moving = self._moves.keys() | self._arrived.keys()
        finder = MoveFinder(now_s, run, chunks, members, repair, moving)
        copies = list(finder.find(self._load()))
        for copy in copies:
            state = chunks.get(copy.chunk)
            assert state is not None, "it was found just now"
            deadline_s = now_s + repair_timeout_s + 2 * state.length / run.bytes_per_second
            self._moves[copy.chunk] = _Move(copy, state.length, deadline_s, run)
        if finder.is_through and not self.under_way:
            run.phase = BalancePhase.STUCK if run.plan.over() or run.plan.under() else BalancePhase.BALANCED
        return copies

    def _load(self) -> Counter[NodeId]:
        load: Counter[NodeId] = Counter()
        for move in self._moves.values():
            if not move.is_answered:
                for node in (move.copy.source, move.copy.target):
                    load[node] += weight(move.length)
        return load

    # -- what datanodes say ------------------------------------------------------------------------

    def answered(self, copy: ReplicaCopy, *, copied: bool) -> None:
        """Take in the source's answer. A success only frees both datanodes; the move counts when `reported`."""
        move = self._moves.get(copy.chunk)
        if move is None or move.copy is not copy:
            return
        move.is_answered = True
        if not copied:
            self._fail(move)

    def reported(self, node: NodeId, replica: Replica) -> None:
        """Take in a datanode's report of a replica. The target's report completes the copy of a move."""
        move = self._moves.get(replica.chunk)
        if move is None or (node, replica.version) != (move.copy.target, move.copy.version):
            return
        del self._moves[replica.chunk]
        run = move.run
        run.moved += 1
        run.failed_in_a_row = 0
        run.bytes_moved += move.length
        self._arrived[replica.chunk] = move.copy

    def ask(self, now_s: float, chunks: ChunkMap, members: Membership, possession: Possession) -> None:
        """Ask sources and targets to prove the copies that have arrived, until one has no room for questions."""
        for chunk, copy in list(self._arrived.items()):
            state = chunks.get(chunk)
            if state is None or not may_drop(chunk, state, copy, chunks, members):
                del self._arrived[chunk]
            elif chunk not in possession and not possession.ask(now_s, state, [copy.source, copy.target]):
                return

    def judge(
        self, evidence: Evidence, chunks: ChunkMap, members: Membership, possession: Possession
    ) -> Drop | None:
        """Return the source's replica to drop, if the evidence allows it. Ends the move in any case."""
        chunk = evidence.chunk
        copy, state = self._arrived.pop(chunk), chunks.get(chunk)
        if state is None or state.version != evidence.version or not may_drop(chunk, state, copy, chunks, members):
            return None
        if len(evidence.agreeing([copy.source, copy.target])) < 2:
            return None
        possession.accept(chunk)
        return Drop(chunk, state.version, state.length, copy.source)

    def node_lost(self, node: NodeId) -> None:
        """End the moves from and to a datanode that is dead or registers again."""
        for move in list(self._moves.values()):
            if node in (move.copy.source, move.copy.target):
                self._fail(move)
        for chunk, copy in list(self._arrived.items()):
            if node in (copy.source, copy.target):
                del self._arrived[chunk]

    def _fail(self, move: _Move) -> None:
        del self._moves[move.copy.chunk]
        move.run.plan.move(move.copy.target, move.copy.source, move.length)
        move.run.failed += 1
        move.run.failed_in_a_row += 1
