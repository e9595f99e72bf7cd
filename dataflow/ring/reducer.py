"""A reducer node of the ring (SMR V, Figure 2): owns an interval, and backs up and monitors the r nodes before it.

Every event returns effects, in order. The host calls `received`, `disconnected` and `tick`. It calls `work` while
`queue_rows` says that there is work, and `serialised` when the bytes of a checkpoint are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from peacefs.dataflow.recovery.ring_settings import RingSettings

from .balancer import RingBalancer
from .checkpointing import Checkpointing
from .effects import RingEffect
from .fragment import Fragment
from .fragment_places import FragmentPlaces
from .hashed_rows import HashedRows
from .keyed_table import KeyedTable
from .messages import (
    EDGE,
    Beat,
    CopyRefused,
    CopyWanted,
    Established,
    Invite,
    KeptTuples,
    Leave,
    MayLeave,
    News,
    NobodyRelieves,
    PeerCheckpoint,
    ProcessEnded,
    Relieve,
    ResultsTaken,
    RingMessage,
    Tuples,
)
from .monitor import Monitor
from .node_context import NodeContext
from .result_outbox import ResultOutbox
from .tokens import Interval
from .transitions import Transitions
from .tuple_queue import QueuedPiece, TupleQueue
from .view import MembershipPhase, RingMember

#: Updates the state with rows of a mapper in one interval, and returns rows for the sink or the next function.
Reduce = Callable[[str, KeyedTable, HashedRows], Iterable[pa.RecordBatch]]


class ReducerCore:
    """One node of a peer ring: it processes the tuples of its interval, and keeps those of neighbours.

    It takes messages, broken connections and the time, and returns effects in order; it does no I/O. With
    exactly-once, a batch changes the state of a fragment only if its number is above the fragment's coverage. So
    each tuple counts once, whatever is replayed. After a `LeaveRing` effect the node does nothing more. `RingNode`
    drives it in a process, and `SeededRing` in seeded simulations.
    """

    def __init__(
        self,
        now_s: float,
        name: str,
        members: Iterable[RingMember],
        mappers: Iterable[str],
        reduce: Reduce,
        new_table: Callable[[], KeyedTable],
        settings: RingSettings,
        *,
        begins: bool = True,
    ) -> None:
        """`begins`: True if the query begins with this node, whose empty state is then complete."""
        self.name = name
        self._reduce = reduce
        self._context = NodeContext(name, members, mappers, settings, new_table)
        self._checkpointing = Checkpointing(self._context)
        self._transitions = Transitions(self._context, self._checkpointing)
        self._balancer = RingBalancer(self._context, self._transitions)
        self._monitor = Monitor(self._context, now_s)
        self._queue, self._outbox = TupleQueue(self._context), ResultOutbox(self._context)
        self._places = FragmentPlaces(self._context, self._queue, self._outbox)
        #: Number of rows processed.
        self.processed_rows = 0
        self._places.assign(now_s, begins=begins)
        self._context.take_effects()

    # -- events ------------------------------------------------------------------------------------------

    def received(self, now_s: float, sender: str, message: RingMessage) -> list[RingEffect]:
        if self._places.gone:
            return []
        if self._context.view.is_gone(sender):
            # It has come back with an old place. Tell it that another node has that place, and ignore its message.
            self._context.send(sender, News((self._context.view.members[sender],)))
            return self._context.take_effects()
        self._monitor.heard(sender)
        self._handle(now_s, sender, message)
        return self._finish(now_s)

    def _handle(self, now_s: float, sender: str, message: RingMessage) -> None:
        match message:
            case News(members):
                if self._context.view.merge(members, sender):
                    self._places.assign(now_s)
            case Tuples():
                for fragment, missing in self._queue.take(message):
                    self._places.lose(fragment, missing)
            case PeerCheckpoint():
                self._checkpointing.received(sender, message)
                self._places.try_copies()
            case CopyWanted():
                self._checkpointing.copy_wanted(sender, message)
            case CopyRefused(interval):
                self._places.refused(sender, self._context.fragments.within(interval))
            case KeptTuples():
                self._checkpointing.kept_tuples(message)
                self._places.try_copies()
            case ResultsTaken(serial):
                self._outbox.taken(serial)
            case Established():
                self._transitions.established(sender, message)
            case Relieve():
                self._balancer.relieve(message)
                self._places.assign(now_s)
            case NobodyRelieves():
                self._balancer.nobody_relieves()
            case Invite():
                self._balancer.invited(message)
                self._places.assign(now_s)
            case MayLeave():
                self._balancer.may_leave(sender)
            case Leave():
                self._balancer.leave()
                self._places.assign(now_s)
            case ProcessEnded(node):
                self._monitor.process_ended(node)
            case Beat():
                pass
            case _:
                raise AssertionError(f"{type(message).__name__} is not for a node of the ring")

    def disconnected(self, now_s: float, peer: str) -> list[RingEffect]:
        """Note that a connection broke, and everything in transit in both directions is lost."""
        if self._places.gone:
            return []
        self._monitor.disconnected(peer)
        self._context.forget_told(peer)
        if peer == EDGE:
            self._outbox.send_again()
        return self._finish(now_s)

    def tick(self, now_s: float, *, busy: float = 0.0) -> list[RingEffect]:
        """Update the time. `busy` is the share of the time in which the node had work."""
        if self._places.gone:
            return []
        self._monitor.beat(now_s)
        if self._monitor.find_dead(now_s):
            self._context.tell_all()
            self._places.assign(now_s)
        if not self._places.gone:
            if busy <= self._context.settings.busy_low:
                self._queue.forget_unheld()
            self._balancer.measure(self.queue_rows, self.waiting_rows, busy)
            self._balancer.tick(now_s)
            self._outbox.report_progress()
            self._places.ask_for_copies(now_s)
            self._checkpointing.cut_due(now_s)
        return self._finish(now_s)

    def serialised(
        self,
        now_s: float,
        interval: Interval,
        number: int,
        changes: tuple[bytes, ...],
        everything: tuple[bytes, ...],
    ) -> list[RingEffect]:
        """Take the bytes of a checkpoint that `Serialise` requested."""
        if not self._places.gone:
            self._checkpointing.serialised(interval, number, changes, everything)
        return self._finish(now_s)

    def not_serialised(self, now_s: float, interval: Interval, number: int) -> list[RingEffect]:
        if not self._places.gone:
            self._checkpointing.not_serialised(interval, number)
        return self._finish(now_s)

    def work(self, now_s: float, rows: int = 65_536) -> list[RingEffect]:
        """Process about this many rows of the queue."""
        while self._queue and rows > 0 and not self._places.gone and not self._blocked:
            queued = self._queue.pop()
            rows -= max(len(queued.piece.rows), 1)
            for fragment in self._context.fragments.within(queued.interval):
                if fragment.primary and not fragment.waits_for:
                    self._process(fragment, queued)
            self._queue.done(queued)
        return self._finish(now_s)

    def take_half(self, now_s: float) -> list[RingEffect]:
        """Move half of the way towards the previous neighbour, if no other change is under way there."""
        before = self._context.view.neighbours_before(self.name, 1)
        if before and self._transitions.possible and self._context.me.phase is MembershipPhase.LIVE:
            self._balancer.take_half(self._context.view.members[before[0]])
            self._places.assign(now_s)
        return self._finish(now_s)

    @property
    def gone(self) -> bool:
        """True once the ring has no place for the node."""
        return self._places.gone

    @property
    def queue_rows(self) -> int:
        return self._queue.rows

    @property
    def waiting_rows(self) -> int:
        """Approximate number of rows that wait for this node, in its queue or in transit."""
        return self._queue.waiting_rows

    @property
    def replayed_rows(self) -> int:
        """Number of rows that were processed again after a take-over."""
        return self._places.replayed_rows

    @property
    def has_work(self) -> bool:
        return bool(self._queue) and not self._places.gone and not self._blocked

    @property
    def _blocked(self) -> bool:
        """True while the sink is too far behind, or the fragment of the next rows is incomplete."""
        if self._outbox.full:
            return True
        within = self._context.fragments.within(self._queue.next_interval) if self._queue else []
        return any(fragment.waits_for for fragment in within)

    @property
    def view_members(self) -> Iterable[RingMember]:
        return self._context.view.members.values()

    def address_of(self, name: str) -> str:
        member = self._context.view.members.get(name)
        return "" if member is None else member.address

    @property
    def followers(self) -> dict[str, str]:
        """The nodes that would take over, and so must know that this node is alive, with their addresses."""
        names = () if self._places.gone else self._monitor.followers()
        return {name: address for name in names if (address := self.address_of(name))}

    def fragments(self) -> Iterator[Fragment]:
        """Yield the fragments of the node, for observers of a run."""
        yield from self._context.fragments

    def _process(self, fragment: Fragment, queued: QueuedPiece) -> None:
        piece = queued.piece
        covered = fragment.coverage.get(piece.mapper, 0)
        if piece.number <= covered and not queued.again:
            return
        rows = piece.rows.between(fragment.interval)
        made: tuple[pa.RecordBatch, ...] = ()
        if len(rows):
            made = tuple(each for each in self._reduce(piece.mapper, fragment.table, rows) if each.num_rows)
            self.processed_rows += len(rows)
            fragment.stamp_us = max(fragment.stamp_us, piece.stamp_us)
        fragment.coverage[piece.mapper] = max(covered, piece.number)
        if made:
            self._outbox.publish(fragment, piece.mapper, max(piece.number, covered), made)

    # -- after each event --------------------------------------------------------------------------------

    def _finish(self, now_s: float) -> list[RingEffect]:
        if not self._places.gone:
            self._checkpointing.report_established()
            if self._transitions.finish():
                self._context.tell_all()
                self._places.assign(now_s)
            if not self._places.gone:
                self._queue.acknowledge()
        return self._context.take_effects()
