"""The coordinator's view of its datanodes: membership, chunk map, repair and placement as one pure core.

Events and `now` go in; orders (messages for datanodes) come out. No clock, no socket, no SQL, no log. A part of
`CoordinatorCore`, which says how it is driven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from peacefs.coordinator.limits import lost_replicas_per_turn, proof_nonce_bytes
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.coordinator.metadata.model import ChunkRecord, Mode
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import (
    Heartbeat,
    Hop,
    Message,
    Register,
    Replica,
    ReportAgain,
    ReportChunks,
    VerifyChunks,
)
from peacefs.topology.model import Topology

from .balancer import Balancer
from .chunk_map import ChunkMap
from .chunk_writes import ChunkAssignments, WriteStreams
from .commands import Order, delete_orders
from .membership import ADMIN_STATES, AdminState, Membership, Node, State, Transition
from .network import ClusterNetwork
from .pending_load import PendingLoad
from .placement import ChunkPlacement
from .possession import Possession, Question
from .repair import Repair, ReplicaCopy
from .replica_history import ReplicaHistory
from .replica_lookup import ReplicaLookup
from .replica_states import ReplicaEvent
from .safe_mode import Readiness
from .slow_peers import Slowness, SlowPeers
from .surplus import Drop, Surplus
from .transient_chunks import TransientChunks

garbage_chunks_per_tick: Final = 2000
# A standby keeps freed chunks this long, in case the leader dies before it has ordered their deletion.
standby_freed_kept_s: Final = 300.0


#: Called with each event of a replica: the time, the event, the chunk, the datanode.
Note = Callable[[float, ReplicaEvent, ChunkId, NodeId], None]
_REPORTED_UNREFERENCED, _MISMATCHED = ReplicaEvent.REPORTED_UNREFERENCED, ReplicaEvent.MISMATCHED


@dataclass(slots=True)
class Ticked:
    """The result of a tick.

    The shell sends `orders`, starts `copies`, passes the answers to `questions` to `proven`, and logs the rest.
    """

    orders: list[Order] = field(default_factory=list)
    copies: list[ReplicaCopy] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    slowness: list[Slowness] = field(default_factory=list)


class Cluster:
    """All soft state of the coordinator about datanodes and replicas. `CoordinatorCore` owns and drives it.

    Chunks that files refer to are in `chunks`, freed ones in `transient`. A method that raises has changed
    nothing.
    """

    def __init__(
        self,
        now_s: float,
        rng: Random,
        described: Topology | None = None,
        *,
        nonce: Callable[[], bytes] | None = None,
        has_room: Callable[[NodeId], bool] = lambda node: True,
        granted_pipelines: Callable[[], Mapping[ChunkId, Sequence[NodeId]]] = dict,
        history: ReplicaHistory | None = None,
    ) -> None:
        """Begin without datanodes. `described` is the administrator's description of the network.

        `nonce` draws bytes that no datanode can foresee; by default `rng` does, which suits only simulations.
        `has_room` returns whether client writes leave capacity on a datanode for copies. `granted_pipelines`
        returns the pipelines of grants in flight. `history` records what happens to replicas.
        """
        self.history = history or ReplicaHistory()
        self._note = self.history.note
        self._readiness = Readiness(now_s)
        self._streams = WriteStreams()
        self._pending = PendingLoad()
        self.members = Membership()
        self.network = ClusterNetwork(described)
        self.chunks = ChunkMap()
        self.repair = Repair()
        self.balancer = Balancer()
        self.possession = Possession(nonce or (lambda: rng.randbytes(proof_nonce_bytes)))
        self._surplus = Surplus(self.chunks, self.members, self.possession)
        self.slow_peers = SlowPeers()
        self._placement = ChunkPlacement(self.members, self.slow_peers, self._pending, rng)
        self.replicas_lost_total = 0
        self.assignments = ChunkAssignments()
        self.transient = TransientChunks()
        self.replicas = ReplicaLookup(self.chunks, self.transient, self.repair)
        self._ticked_s = now_s
        #: The highest epoch that each datanode has heard; the epoch that all must hear before surplus is dropped.
        self._epochs_heard: dict[NodeId, int] = {}
        self._epoch_awaited = 0
        self._has_room = has_room
        self.granted_pipelines = granted_pipelines

    # -- what the namespace says -------------------------------------------------------------------

    def load(self, records: Sequence[ChunkRecord]) -> None:
        """Take in a page of the chunks that the namespace knew at the start."""
        for record in records:
            self._know(record, note=self.history.note_listed)
            self._readiness.expect(record.hint)
            for node in record.hint:
                if self._is_awaited(node):
                    self.chunks.expect(node, record.chunk)
                    self._note(self._ticked_s, ReplicaEvent.EXPECTED, record.chunk, node)

    def _know(self, record: ChunkRecord, holders: Sequence[NodeId] = (), *, note: Note) -> None:
        for node, event in self.chunks.add_chunk(record, holders, self._ticked_s):
            note(self._ticked_s, event, record.chunk, node)

    def _is_awaited(self, node_id: NodeId) -> bool:
        """Return whether a datanode is in maintenance and has not reported since this coordinator started."""
        node = self.members.get(node_id)
        is_here = self._readiness.loaded or (node is not None and node.reported)
        return not is_here and self.members.mode(node_id) is Mode.MAINTENANCE

    def loaded(self) -> None:
        """Note that the last page was loaded, and start to wait for datanodes."""
        self._readiness.wait(self._ticked_s)

    @property
    def is_loaded(self) -> bool:
        """Return whether all chunks that the namespace knew at the start are known here."""
        return self._readiness.loaded

    def published(self, records: Sequence[ChunkRecord]) -> None:
        """Take in the chunks of a completed file. Each record's `hint` names the nodes that gave receipts."""
        for record in records:
            self._end(record.chunk)
            self.assignments.published(record.chunk)
            # Use the members' own id objects, so that all chunks share them. Skip a node that has died meanwhile:
            # it reports its replicas when it comes back.
            holders = [
                node.id
                for name in record.hint
                if (node := self.members.get(name)) is not None and node.state is not State.DEAD
            ]
            self._know(record, holders, note=self._note)

    def freed(self, now_s: float, records: Sequence[ChunkRecord]) -> list[Order]:
        """Free chunks that no file refers to any more. Their replicas stay for a while: see `transient_chunks`."""
        for record in records:
            state = self.chunks.get(record.chunk)
            corrupt = () if state is None else state.corrupt
            named = () if state is None else (*state.holders, *corrupt, *state.awaited)
            holders = [node for node in self.chunks.forget(record.chunk) if node not in corrupt]
            replica = Replica(record.chunk, record.version, record.length)
            self.transient.free(now_s, replica, holders, corrupt)
            for node in named:
                self._note(now_s, ReplicaEvent.DEREFERENCED, record.chunk, node)
        return self._release(now_s, self.transient.take_excess())

    def _release(self, now_s: float, freed: dict[NodeId, list[Replica]]) -> list[Order]:
        for node, replicas in freed.items():
            for replica in replicas:
                self._note(now_s, ReplicaEvent.RELEASED, replica.chunk, node)
        return delete_orders(freed)

    # -- what datanodes say ------------------------------------------------------------------------

    def register(self, now_s: float, registration: Register) -> None:
        """Take in a new or returning datanode. Its earlier replicas do not count until it reports them again."""
        self._lose(now_s, registration.node)
        self.members.register(now_s, registration, self.network.rack_of(registration))

    def report(self, now_s: float, node_id: NodeId, part: ReportChunks) -> list[Order]:
        """Take in a part of a full block report."""
        node = self.members.get(node_id)
        if node is None or not self.members.heard(now_s, node_id):
            return [Order(node_id, ReportAgain())]
        orders = self._take_in(now_s, node_id, part.replicas, self.history.note_listed)
        if part.last:
            node.reported = True
            self.chunks.await_no_more(node_id)
            self.history.note_datanode(now_s, ReplicaEvent.NODE_GIVEN_UP, node_id)
        return orders

    def heartbeat(self, now_s: float, node_id: NodeId, beat: Heartbeat) -> list[Order]:
        """Take in a heartbeat, with the changes since the last one."""
        if not self.members.heard(now_s, node_id, beat.usage):
            return [Order(node_id, ReportAgain())]
        if beat.stopping:
            self.members.stops(node_id)
        # A datanode remembers the highest epoch across its restarts.
        self._epochs_heard[node_id] = max(beat.epoch, self._epochs_heard.get(node_id, 0))
        self.slow_peers.tell(node_id, beat.samples)
        self.members.tell_disks(node_id, beat.disks)
        orders = self._take_in(now_s, node_id, beat.added, self._note)
        for replica in beat.removed:
            self.chunks.remove_replica(node_id, replica.chunk)
            self.transient.remove_replica(node_id, replica.chunk)
            self.repair.dropped(replica.chunk, node_id)
            self._note(now_s, ReplicaEvent.REMOVED, replica.chunk, node_id)
        for replica in beat.corrupt:
            if self.transient.mark_corrupt(node_id, replica.chunk) or self.chunks.mark_corrupt(
                node_id, replica.chunk
            ):
                self._note(now_s, ReplicaEvent.FOUND_CORRUPT, replica.chunk, node_id)
        return orders

    def suspect_replica(self, node_id: NodeId, replica: Replica) -> list[Order]:
        """Ask a datanode to verify a replica that a reader found corrupt. Only its own finding counts."""
        return [Order(node_id, VerifyChunks([replica]))]

    def answered(self, copy: ReplicaCopy, *, copied: bool) -> None:
        """Take in a source's answer to a copy order, of the balancer or of repair."""
        if copy.bytes_per_second:
            self.balancer.answered(copy, copied=copied)
        else:
            self.copy_finished(copy.chunk, copied=copied)

    def copy_finished(self, chunk: ChunkId, *, copied: bool) -> None:
        """Take in a source's answer to an order of repair. `copied` is true if the target has acknowledged."""
        copy = self.repair.finished(chunk, copied=copied)
        state = self.chunks.get(chunk)
        if copied and copy is not None and state is not None:
            if copy.version == state.version:
                self.chunks.attest(self._ticked_s, copy.target, state)
                self._note(self._ticked_s, ReplicaEvent.ATTESTED, chunk, copy.target)
        elif copy is not None and not copied:
            self._note(self._ticked_s, ReplicaEvent.COPY_FAILED, chunk, copy.target)

    def proven(self, question: Question, answer: Message) -> None:
        """Process a datanode's answer to a question, or a Failure if there was no answer."""
        self.possession.answered(question, answer)

    def _take_in(self, now_s: float, node_id: NodeId, replicas: Sequence[Replica], note: Note) -> list[Order]:
        doomed: dict[NodeId, list[Replica]] = {}
        for replica in replicas:
            event = self._reported(node_id, replica)
            note(now_s, event, replica.chunk, node_id)
            if event is _REPORTED_UNREFERENCED and replica.chunk in self.assignments:
                self.chunks.remove_replica(node_id, replica.chunk)
                note(now_s, ReplicaEvent.ABANDONED, replica.chunk, node_id)
            elif event is not _MISMATCHED:
                self.balancer.reported(node_id, replica)
                continue
            doomed.setdefault(node_id, []).append(replica)
        return delete_orders(doomed)

    def _reported(self, node_id: NodeId, replica: Replica) -> ReplicaEvent:
        """Record a replica that its datanode reports. Return the event that this is."""
        if self.transient.add_replica(node_id, replica.chunk):
            return ReplicaEvent.REPORTED_FREED
        return self.chunks.add_replica(node_id, replica)

    def _drop_unconfirmed(self, now_s: float) -> None:
        """Drop replicas that were not confirmed in time although their datanode is alive."""
        unconfirmed = self.chunks.unconfirmed
        for node_id, chunk in unconfirmed.overdue(now_s):
            node = self.members.get(node_id)
            if node is not None and node.state is State.SUSPECT:
                unconfirmed.add(now_s, node_id, chunk)
                continue
            if node is not None and node.state is State.ALIVE:
                self.chunks.remove_replica(node_id, chunk, ReplicaEvent.OVERDUE)
                self._note(now_s, ReplicaEvent.OVERDUE, chunk, node_id)
            unconfirmed.confirm(node_id, chunk)

    def _lose(self, now_s: float, node_id: NodeId) -> int:
        """Stop counting the replicas of a datanode. Return how many replicas are lost."""
        is_away = self.members.mode(node_id) is Mode.MAINTENANCE
        lost = self.chunks.remove_node(node_id)
        self._forget_copies(node_id)
        event = ReplicaEvent.NODE_AWAY if is_away else ReplicaEvent.NODE_LOST
        self.history.note_datanode(now_s, event, node_id)
        return lost

    def _forget_copies(self, node_id: NodeId) -> None:
        self.repair.node_lost(node_id)
        self.balancer.node_lost(node_id)
        self.possession.node_lost(node_id)
        self.slow_peers.forget(node_id)

    # -- what an operator says ---------------------------------------------------------------------

    def describe_network(self, described: Topology) -> None:
        """Use a new description of the network by the administrator. It may move datanodes to other racks.

        Raises InvalidTopology, and changes nothing, if a datanode has the name of a switch.
        """
        ClusterNetwork(described).topology(self.members.all())
        self.network.describe(described)
        for node in self.members.all():
            self.members.move(node.id, self.network.rack_of(node.registration))

    def topology(self) -> Topology:
        """Return the network of the datanodes that are alive."""
        return self.network.topology(self.members.alive())

    def set_mode(self, node_id: NodeId, mode: Mode, ends_s: float = inf) -> None:
        """Take a datanode out of service until `ends_s`, or back into service. It need not be registered.

        Call this before `load` for decisions of earlier epochs.
        """
        self.members.set_mode(node_id, mode, ends_s)
        self._treat(node_id, mode)

    def revoke(self, node_id: NodeId) -> None:
        """Stop trusting a datanode. All its replicas count as lost at once."""
        if self.members.mode(node_id) is Mode.MAINTENANCE:
            # Otherwise its replicas would be awaited instead of lost.
            self.set_mode(node_id, Mode.IN_SERVICE)
        self.members.revoke(node_id)
        self.replicas_lost_total += self._lose(self._ticked_s, node_id)

    def readmit(self, node_id: NodeId) -> None:
        """Let a revoked datanode register again. It then reports its replicas."""
        self.members.readmit(node_id)

    def _treat(self, node_id: NodeId, mode: Mode) -> None:
        lost = self.chunks.set_mode(node_id, mode)
        if mode is not Mode.MAINTENANCE:
            self.history.note_datanode(self._ticked_s, ReplicaEvent.NODE_GIVEN_UP, node_id)
        node = self.members.get(node_id)
        if node is not None and node.state is State.DEAD:
            self.replicas_lost_total += lost

    def admin_state_of(self, node: Node) -> AdminState:
        """Return a datanode's progress in leaving service."""
        is_known = node.reported or node.state is State.DEAD
        is_judged = is_known and self.chunks.is_indexed(node.id)
        is_drained = is_judged and self._readiness.settled and self.chunks.is_drained(node.id)
        return ADMIN_STATES[self.members.mode(node.id), is_drained]

    def without_a_place(self, node: Node) -> int:
        """Count the chunks of a decommissioning datanode that want more replicas than datanodes will remain."""
        if self.members.mode(node.id) is not Mode.DECOMMISSION:
            return 0
        stay = [
            each
            for each in self.members.all()
            if each.state is not State.DEAD and self.members.mode(each.id) is not Mode.DECOMMISSION
        ]
        return self.chunks.without_a_place(node.id, len(stay))

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now_s: float, garbage: Garbage) -> Ticked:
        """Do the periodic work, several times a second. `garbage` tells which unreferenced chunks are garbage."""
        ticked = Ticked(transitions=self.members.tick(now_s))
        self._ticked_s = now_s
        for node in self.members.take_ended(now_s):
            self._treat(node, Mode.IN_SERVICE)
        for transition in ticked.transitions:
            if transition.after is State.DEAD:
                self.replicas_lost_total += self._lose(now_s, transition.node)
        self.chunks.remove_lost(lost_replicas_per_turn)
        self._drop_unconfirmed(now_s)
        self._streams.close_overdue(now_s)
        self._pending.forget_old(now_s)
        ticked.slowness = self.slow_peers.judge(now_s)
        ticked.orders = self._release(now_s, self.transient.take_due(now_s))
        if self.ready(now_s):
            ticked.copies = self.repair.plan(
                now_s, self.chunks, self.members, self._placement.target_chooser(), self._has_room
            )
            ticked.copies += self.balancer.tick(now_s, self.chunks, self.members, self.repair)
            for copy in ticked.copies:
                self._note(now_s, ReplicaEvent.COPY_ORDERED, copy.chunk, copy.target)
            ticked.orders += self._clean_up(now_s, garbage)
            if not self.awaits_epoch:
                # Until then a datanode may still obey a drop order of the previous leader after proving a replica.
                self.balancer.ask(now_s, self.chunks, self.members, self.possession)
                for chunk, node in self._surplus.ask(now_s, self.balancer.arrived):
                    self._note(now_s, ReplicaEvent.SWEPT, chunk, node)
            ticked.questions = self.possession.take_questions(now_s)
        return ticked

    def await_epoch(self, epoch: int) -> None:
        """Ask for no proofs and drop no surplus until all datanodes that are not dead have heard of this epoch.

        Until then a datanode may still obey the previous leader, which may be dropping the other replicas.
        """
        self._epoch_awaited = epoch

    @property
    def awaits_epoch(self) -> bool:
        """Return whether a datanode may still obey the previous leader."""
        return self._epoch_awaited > 0 and any(
            self._epochs_heard.get(node.id, 0) < self._epoch_awaited
            for node in self.members.all()
            if node.state is not State.DEAD
        )

    def stand_by(self, now_s: float) -> list[Transition]:
        """Do the periodic work of a standby: track membership, and order nothing.

        Freed chunks are kept longer than the leader needs to have them deleted.
        """
        transitions = self.members.tick(now_s)
        self._ticked_s = now_s
        for transition in transitions:
            if transition.after is State.DEAD:
                self.replicas_lost_total += self._lose(now_s, transition.node)
        self.chunks.remove_lost(lost_replicas_per_turn)
        self._drop_unconfirmed(now_s)
        self.transient.take_due(now_s - standby_freed_kept_s)
        self.ready(now_s)
        return transitions

    def _clean_up(self, now_s: float, garbage: Garbage) -> list[Order]:
        doomed: dict[NodeId, list[Replica]] = {}
        for node, replica in list(self.chunks.unreferenced.below(garbage, garbage_chunks_per_tick)):
            doomed.setdefault(node, []).append(replica)
            self.chunks.remove_replica(node, replica.chunk)
            self._note(now_s, ReplicaEvent.GARBAGE, replica.chunk, node)
        for drop in [] if self.awaits_epoch else list(self._proven_drops(now_s)):
            self.repair.drop_ordered(now_s, drop.chunk, drop.node)
            doomed.setdefault(drop.node, []).append(Replica(drop.chunk, drop.version, drop.length))
            self.chunks.remove_replica(drop.node, drop.chunk, ReplicaEvent.EXCESS)
            self._note(now_s, ReplicaEvent.EXCESS, drop.chunk, drop.node)
        return delete_orders(doomed)

    def _proven_drops(self, now_s: float) -> Iterator[Drop]:
        for evidence in self.possession.take_evidence(now_s):
            if evidence.chunk not in self.balancer.arrived:
                yield from self._surplus.judge(now_s, evidence)
            elif drop := self.balancer.judge(evidence, self.chunks, self.members, self.possession):
                yield drop

    def ready(self, now_s: float) -> bool:
        """Return whether enough is known to judge replication, place chunks and report data as missing.

        Once true, it stays true for the rest of the epoch.
        """
        return self._readiness.judge(now_s, self.members, self.chunks)

    # -- placing and finding -----------------------------------------------------------------------

    def place(
        self,
        now_s: float,
        chunk: ChunkId,
        writer_host: str | None,
        replication: int,
        exclude: frozenset[NodeId],
        expires_s: float,
    ) -> list[Node]:
        """Choose nodes for a new chunk, the head of the pipeline first.

        Returns fewer than `replication` if fewer are alive; repair adds replicas later. Raises NoDatanodes.
        """
        chosen = self._placement.place(writer_host, replication, exclude)
        self.granted(now_s, chunk, chosen, expires_s)
        nodes = [self.members.get(node) for node in chosen]
        return [node for node in nodes if node is not None]

    def granted(self, now_s: float, chunk: ChunkId, nodes: Sequence[NodeId], expires_s: float) -> None:
        """Note that a chunk was placed on `nodes` and may be written for `expires_s`."""
        self._streams.open(chunk, now_s + expires_s)
        self._pending.add(now_s, chunk, nodes)

    def written(self, chunk: ChunkId) -> None:
        """Note that a chunk is on its datanodes. Its file is not published yet."""
        self._pending.end(chunk)

    def write_ended(self, chunk: ChunkId) -> None:
        """Note that a chunk is not being written any more. Its data may still become part of a file."""
        self._end(chunk)

    def _end(self, chunk: ChunkId) -> None:
        self._streams.close(chunk)
        self._pending.end(chunk)

    def abandon(self, chunks: Iterable[ChunkId], writer: str) -> list[Order]:
        """Abandon the chunks that are assigned to `writer`; ignore the others."""
        doomed: dict[NodeId, list[Replica]] = {}
        for chunk in chunks:
            self._end(chunk)
            if self.chunks.get(chunk) is None and self.assignments.abandon(chunk, writer):
                for node_id, replica in self.chunks.unreferenced.take(chunk).items():
                    doomed.setdefault(node_id, []).append(replica)
                    self._note(self._ticked_s, ReplicaEvent.ABANDONED, chunk, node_id)
        return delete_orders(doomed)

    def pipelines(self) -> list[list[NodeId]]:
        """Return the pipelines of the chunks that are being written now, as far as is known.

        A granted chunk counts until its end is reported; other chunks are small and count for a moment.
        """
        return [list(nodes) for nodes in {**self._pending.pipelines(), **self.granted_pipelines()}.values()]

    def locations(self, chunk: ChunkId, near_host: str | None = None) -> list[Node]:
        """Return the holders of good replicas, in the order of `ChunkPlacement.nearest_first`."""
        state = self.chunks.get(chunk)
        holders = self.transient.holders(chunk) if state is None else state.holders
        return self._placement.nearest_first(holders, near_host)

    def is_held(self, chunk: ChunkId) -> bool:
        """Return whether any datanode holds a good or an unreferenced replica of the chunk."""
        state = self.chunks.get(chunk)
        return chunk in self.chunks.unreferenced if state is None else bool(state.holders)

    @property
    def chunks_being_written(self) -> Set[ChunkId]:
        """Chunks that were placed and are neither completed nor abandoned. Clients may be writing them."""
        return self._streams.chunks

    def hop(self, node_id: NodeId) -> Hop | None:
        node = self.members.get(node_id)
        return None if node is None else node.hop
