"""A reducer node of the ring (SMR V, Figure 2): owner of an interval, backup of the r before it, and its monitor.

Every event returns effects, in order. The host calls `received`, `disconnected` and `tick`, `work` while
`queue_rows` says that there is something to do, and `serialised` when a checkpoint's bytes are there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from peacefs.dataflow.recovery.ring_settings import RingSettings

from .balancer import RingBalancer
from .checkpointing import Checkpointing
from .effects import LeaveRing, RingEffect
from .fragment import Fragment
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
    Result,
    Results,
    ResultsTaken,
    RingMessage,
    StateLost,
    Tuples,
    TuplesHeld,
)
from .monitor import Monitor
from .node_context import NodeContext
from .tokens import Interval
from .transitions import Transitions
from .tuple_backup import Piece
from .view import MembershipPhase, RingMember

#: Changes the state by rows of a mapper in one interval, and returns rows for the sink, or for the next function.
Reduce = Callable[[str, KeyedTable, HashedRows], Iterable[pa.RecordBatch]]


@dataclass(slots=True)
class _Queued:
    """Rows that wait to be processed; those of fragments that are elsewhere by then are left out."""

    interval: Interval
    piece: Piece
    message: _HeldState | None
    #: True for tuples that are replayed at least once, whether the state contains them or not.
    again: bool = False


@dataclass(slots=True)
class _HeldState:
    """A message of a mapper, and how many of its pieces wait."""

    serial: int
    waiting: int = 0


class ReducerCore:
    """One node of a peer ring: it processes the tuples of its interval, and keeps those of neighbours.

    It takes messages, broken connections and the time, and returns effects in order; it does no I/O. With
    exactly-once, a batch changes the state of a fragment only if its number is above the fragment's coverage, so
    that each tuple counts once, whatever is replayed. After a `LeaveRing` effect the node does nothing more.
    `RingNode` drives it in a process, and `SeededRing` under a seed.
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
        """`begins`: True if the query begins with this node, so that it has everything that there is: nothing."""
        self.name = name
        self._reduce = reduce
        self._context = NodeContext(name, members, mappers, settings, new_table)
        self._checkpointing = Checkpointing(self._context)
        self._transitions = Transitions(self._context, self._checkpointing)
        self._balancer = RingBalancer(self._context, self._transitions)
        self._monitor = Monitor(self._context, now_s)
        self._queue: deque[_Queued] = deque()
        self.queue_rows = 0
        # Messages of mappers that were not acknowledged, in order.
        self._held: dict[str, deque[_HeldState]] = {}
        # Rows that each mapper has sent, and that were not acknowledged, when it sent its last message.
        self._unheld_rows: dict[str, int] = {}
        self._results: deque[tuple[int, Result]] = deque()
        self._result_serial = 0
        self._results_bytes = 0
        self._asked_s = float("-inf")
        self.gone = False
        #: Rows that were processed, those again that were replayed, and tuples that came here for others.
        self.processed_rows = self.replayed_rows = 0
        self._assign(now_s, begins=begins)
        self._context.take_effects()

    # -- events ------------------------------------------------------------------------------------------

    def received(self, now_s: float, sender: str, message: RingMessage) -> list[RingEffect]:
        if self.gone:
            return []
        if self._context.view.is_gone(sender):
            # It comes back with an old place: it learns that another has it, and is not listened to.
            self._context.send(sender, News((self._context.view.members[sender],)))
            return self._context.take_effects()
        self._monitor.heard(sender)
        self._handle(now_s, sender, message)
        return self._finish(now_s)

    def _handle(self, now_s: float, sender: str, message: RingMessage) -> None:
        match message:
            case News(members):
                if self._context.view.merge(members, sender):
                    self._assign(now_s)
            case Tuples():
                self._take_tuples(message)
            case PeerCheckpoint():
                self._checkpointing.received(sender, message)
                self._try_copies()
            case CopyWanted():
                self._checkpointing.copy_wanted(sender, message)
            case CopyRefused(interval):
                for fragment in self._context.fragments.within(interval):
                    fragment.waits_for.discard(sender)
                    self._look_for_loss(fragment)
            case KeptTuples():
                self._checkpointing.kept_tuples(message)
                self._try_copies()
            case ResultsTaken(serial):
                self._results_taken(serial)
            case Established():
                self._transitions.established(sender, message)
            case Relieve():
                self._balancer.relieve(message)
                self._assign(now_s)
            case NobodyRelieves():
                self._balancer.nobody_relieves()
            case Invite():
                self._balancer.invited(message)
                self._assign(now_s)
            case MayLeave():
                self._balancer.may_leave(sender)
            case Leave():
                self._balancer.leave()
                self._assign(now_s)
            case ProcessEnded(node):
                self._monitor.process_ended(node)
            case Beat():
                pass
            case _:
                raise AssertionError(f"{type(message).__name__} is not for a node of the ring")

    def disconnected(self, now_s: float, peer: str) -> list[RingEffect]:
        """Learn that a connection broke: what was on its way is lost, in both directions."""
        if self.gone:
            return []
        self._monitor.disconnected(peer)
        self._context.forget_told(peer)
        if peer == EDGE:
            for serial, result in self._results:
                self._context.send(EDGE, Results(serial, result))
        return self._finish(now_s)

    def tick(self, now_s: float, *, busy: float = 0.0) -> list[RingEffect]:
        """Time passes; `busy` is the share of it in which the node had something to do."""
        if self.gone:
            return []
        self._monitor.beat(now_s)
        if self._monitor.find_dead(now_s):
            self._context.tell_all()
            self._assign(now_s)
        if not self.gone:
            if busy <= self._context.settings.busy_low:
                # It has caught up, whatever mappers that have stopped since said last.
                self._unheld_rows.clear()
            self._balancer.measure(self.queue_rows, self.waiting_rows, busy)
            self._balancer.tick(now_s)
            self._report_progress()
            self._ask_for_copies(now_s)
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
        """Take the bytes of a checkpoint that `Serialise` asked for."""
        if not self.gone:
            self._checkpointing.serialised(interval, number, changes, everything)
        return self._finish(now_s)

    def not_serialised(self, now_s: float, interval: Interval, number: int) -> list[RingEffect]:
        if not self.gone:
            self._checkpointing.not_serialised(interval, number)
        return self._finish(now_s)

    def work(self, now_s: float, rows: int = 65_536) -> list[RingEffect]:
        """Process about so many rows of the queue."""
        while self._queue and rows > 0 and not self.gone and not self._blocked:
            queued = self._queue.popleft()
            rows -= max(len(queued.piece.rows), 1)
            self.queue_rows -= len(queued.piece.rows)
            for fragment in self._context.fragments.within(queued.interval):
                if fragment.primary and not fragment.waits_for:
                    self._process(fragment, queued)
            if queued.message is not None:
                queued.message.waiting -= 1
        return self._finish(now_s)

    def take_half(self, now_s: float) -> list[RingEffect]:
        """Move by the half of the distance to the neighbour before, if nothing else changes there."""
        before = self._context.view.neighbours_before(self.name, 1)
        if before and self._transitions.possible and self._context.me.phase is MembershipPhase.LIVE:
            self._balancer.take_half(self._context.view.members[before[0]])
            self._assign(now_s)
        return self._finish(now_s)

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for this node, in its queue or on their way to it, about.

        A node that is slow reads slowly, too: what it has not read waits with the mappers. Of what a mapper sends
        to a node, its own rows are one part of r + 1; the others are for its neighbours.
        """
        on_way = sum(self._unheld_rows.values()) // (self._context.settings.r + 1)
        return max(self.queue_rows, on_way)

    @property
    def has_work(self) -> bool:
        return bool(self._queue) and not self.gone and not self._blocked

    @property
    def _blocked(self) -> bool:
        """True while the sink is too far behind, or the next rows are of a fragment that is not whole yet."""
        if self._results_bytes > self._context.settings.results_bytes_max:
            return True
        within = self._context.fragments.within(self._queue[0].interval) if self._queue else []
        return any(fragment.waits_for for fragment in within)

    @property
    def view_members(self) -> Iterable[RingMember]:
        return self._context.view.members.values()

    def address_of(self, name: str) -> str:
        member = self._context.view.members.get(name)
        return "" if member is None else member.address

    @property
    def followers(self) -> frozenset[str]:
        """The addresses of those that would take over, and have to know that this node is alive."""
        names = () if self.gone else self._monitor.followers()
        return frozenset(filter(None, map(self.address_of, names)))

    def fragments(self) -> Iterator[Fragment]:
        """Yield what the node has, for those who look at a run."""
        yield from self._context.fragments

    # -- tuples ------------------------------------------------------------------------------------------

    def _take_tuples(self, message: Tuples) -> None:
        held = _HeldState(message.serial)
        self._unheld_rows[message.mapper] = message.unheld_rows
        self._held.setdefault(message.mapper, deque()).append(held)
        for span in message.spans:
            for fragment in self._context.fragments.cut_around(span):
                self._take_piece(fragment, message, held)

    def _take_piece(self, fragment: Fragment, message: Tuples, held: _HeldState) -> None:
        upto = fragment.upto.get(message.mapper, 0)
        if not fragment.receive(message.mapper, message.after, message.number):
            return
        piece = Piece(message.mapper, message.number, message.stamp_us, message.rows.between(fragment.interval))
        if fragment.primary and not fragment.waits_for:
            if message.after > max(upto, fragment.coverage.get(message.mapper, 0)):
                self._lose(fragment, f"batches {upto + 1} to {message.after} of mapper {message.mapper!r}")
                fragment.begins[message.mapper] = 0
            held.waiting += 1
            self._enqueue(_Queued(fragment.interval, piece, held))
        elif message.number > fragment.coverage.get(message.mapper, 0):
            fragment.backup.add(piece)

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self.queue_rows += len(queued.piece.rows)

    def _process(self, fragment: Fragment, queued: _Queued) -> None:
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
            self._publish(fragment, piece.mapper, max(piece.number, covered), made)

    # -- results -----------------------------------------------------------------------------------------

    def _publish(self, fragment: Fragment, mapper: str, number: int, rows: tuple[pa.RecordBatch, ...]) -> None:
        result = Result(mapper, fragment.reported.get(mapper, 0), number, fragment.interval, rows)
        fragment.reported[mapper] = number
        fragment.results.append(result)
        self._send_result(result)

    def _send_result(self, result: Result) -> None:
        self._result_serial += 1
        self._results.append((self._result_serial, result))
        self._results_bytes += result.bytes
        self._context.send(EDGE, Results(self._result_serial, result))

    def _report_progress(self) -> None:
        """Tell the sink of batches of which nothing was made."""
        for fragment in self._context.fragments:
            if fragment.primary and not fragment.waits_for:
                for mapper, number in fragment.coverage.items():
                    if number > fragment.reported.get(mapper, 0):
                        self._publish(fragment, mapper, number, ())

    def _results_taken(self, serial: int) -> None:
        while self._results and self._results[0][0] <= serial:
            _, result = self._results.popleft()
            self._results_bytes -= result.bytes
            for fragment in self._context.fragments:
                if fragment.primary and fragment.interval.overlaps(result.interval):
                    fragment.results = [each for each in fragment.results if each is not result]

    # -- places ------------------------------------------------------------------------------------------

    def _assign(self, now_s: float, *, begins: bool = False) -> None:
        """Take up what the ring says that this node owns and holds, and drop the rest."""
        view, fragments = self._context.view, self._context.fragments
        if view.is_gone(self.name):
            self.gone = True
            left = view.members[self.name].phase is MembershipPhase.LEAVING
            reason = "has left the ring" if left else "has no place any more: another has taken its token over"
            self._context.effects.append(LeaveRing(f"node {self.name!r} {reason}"))
            return
        for fragment in list(fragments):
            for place in view.places_within(fragment.interval):
                fragments.cut_at(place)
        for arc in view.arcs_of(self.name):
            for gap in fragments.gaps(arc.interval):
                fragment = Fragment(gap, self._context.new_table(), has_state=begins)
                if begins:
                    fragment.begins = dict.fromkeys(self._context.mappers, 0)
                fragments.add(fragment)
        for fragment in list(fragments):
            arc = view.arc_at(fragment.interval.low)
            fragment.waits_for = {each for each in fragment.waits_for if each in arc.holders}
            if self.name not in arc.holders:
                fragment.give_up_cut()
                fragments.remove(fragment)
            elif arc.owner == self.name and not fragment.primary:
                fragment.based = fragment.based or set(arc.holders)
                self._promote(now_s, fragment, arc.holders)
            elif arc.owner != self.name:
                if fragment.primary:
                    self._demote(fragment)
                fragment.based = set(arc.holders)
            elif fragment.primary:
                fragment.based &= set(arc.holders)
                self._look_for_loss(fragment)

    def _promote(self, now_s: float, fragment: Fragment, holders: tuple[str, ...]) -> None:
        """Become the owner of a fragment: by what is here, or by what another holder has."""
        fragment.primary, fragment.cut_s = True, now_s
        if not fragment.complete(self._context.mappers):
            fragment.waits_for = {each for each in holders if each != self.name}
            self._asked_s = float("-inf")
            self._look_for_loss(fragment, first=True)
        else:
            self._begin(fragment)

    def _begin(self, fragment: Fragment) -> None:
        """Replay the tuples since the state, and go on."""
        fragment.waits_for = set()
        fragment.base = dict(fragment.coverage)
        fragment.reported = dict(fragment.coverage)
        for result in fragment.results:
            self._send_result(result)
        for piece in fragment.backup.pieces():
            again = not self._context.settings.exactly_once
            if again or piece.number > fragment.coverage.get(piece.mapper, 0):
                self.replayed_rows += len(piece.rows)
                self._enqueue(_Queued(fragment.interval, piece, None, again))
        fragment.backup.clear()

    def _demote(self, fragment: Fragment) -> None:
        """Become one of those that keep a copy: with the state as it is, and what waits to be processed."""
        fragment.give_up_cut()
        fragment.primary, fragment.waits_for, fragment.wants_cut = False, set(), False
        for queued in self._queue:
            if queued.interval.overlaps(fragment.interval):
                piece = queued.piece
                if piece.number > fragment.coverage.get(piece.mapper, 0):
                    rows = piece.rows.between(fragment.interval)
                    fragment.backup.add(Piece(piece.mapper, piece.number, piece.stamp_us, rows))

    # -- what is missing ---------------------------------------------------------------------------------

    def _ask_for_copies(self, now_s: float) -> None:
        waiting = [fragment for fragment in self._context.fragments if fragment.waits_for]
        if waiting and now_s >= self._asked_s + self._context.settings.suspect_s:
            self._asked_s = now_s
            for fragment in waiting:
                for name in sorted(fragment.waits_for):
                    self._context.send(name, CopyWanted(fragment.interval, as_owner=True))

    def _try_copies(self) -> None:
        for fragment in self._context.fragments:
            if fragment.primary and fragment.waits_for and fragment.complete(self._context.mappers):
                self._begin(fragment)

    def _look_for_loss(self, fragment: Fragment, *, first: bool = False) -> None:
        """Go on without what nobody has, and say so."""
        if not fragment.primary or fragment.waits_for or fragment.complete(self._context.mappers):
            return
        if not first and fragment.has_state and not fragment.missing(self._context.mappers):
            return
        self._lose(fragment, "its state" if not fragment.has_state else "some of its tuples")
        fragment.has_state = True
        fragment.begins = dict.fromkeys(self._context.mappers, 0)
        self._begin(fragment)

    def _lose(self, fragment: Fragment, what: str) -> None:
        reason = (
            f"{what} of {fragment.interval.share:.1%} of the ring is lost: {self._context.settings.r + 1} "
            "neighbours or more died at once; raise r, or place neighbours in different racks"
        )
        self._context.send(EDGE, StateLost(fragment.interval, reason))

    # -- after each event --------------------------------------------------------------------------------

    def _finish(self, now_s: float) -> list[RingEffect]:
        if not self.gone:
            self._checkpointing.report_established()
            if self._transitions.finish():
                self._context.tell_all()
                self._assign(now_s)
            if not self.gone:
                self._acknowledge()
        return self._context.take_effects()

    def _acknowledge(self) -> None:
        """Tell mappers what this node has, unless it keeps too much for others already."""
        backup_bytes = sum(fragment.backup.held_bytes for fragment in self._context.fragments)
        if backup_bytes > self._context.settings.backup_bytes_max:
            return
        for mapper, held in self._held.items():
            serial = 0
            while held and not held[0].waiting:
                serial = held.popleft().serial
            if serial:
                self._context.send(EDGE, TuplesHeld(mapper, serial))
